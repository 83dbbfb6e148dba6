// Products with few tokens: lanes are 8 rows, codes are used as they lie in the file, read once at memory speed.
#pragma once

#include "kernels/avx2/affine_unpack.h"

namespace mlxlm::avx2 {
namespace {

/// How the codes of 8 rows are read.
enum class Codes {
  nibbles,   ///< 4 bits, in place, two groups at a time
  unpacked,  ///< at most 6 bits, unpacked to bytes in the order of their pack
  bytes,     ///< 8 bits, in place
};

/// Weight groups whose scales are made ready at once: 16-byte loads of 16-bit scales, transposed.
constexpr int kScaleGroups = 8;
/// Bytes by which the second prefetch of a line leads, rounded up to whole row blocks. The first leads by twice that; a
/// core drops some, which the second brings.
constexpr int64_t kPrefetchLead = 4096;

/// Scales and biases of 8 rows for kScaleGroups weight groups, and 8 rows of unpacked codes.
struct GemvScratch {
  alignas(64) uint8_t codes[kRowTile * kScaleGroups * 128];
  alignas(64) std::byte scales[kScaleGroups * 64];  ///< entries of 8 weight groups
};

/// Eight rows of a matrix. A row stride of 0 makes all lanes the same row, for the last rows of a matrix.
struct RowBlock {
  const uint8_t* data;
  const uint8_t* end;  ///< of the whole matrix's data
  int64_t row_bytes;   ///< or 0
  const std::byte* scales;
  const std::byte* biases;
  int64_t scale_row_bytes;  ///< or 0
  int64_t data_lead;        ///< bytes from the data to what is to be prefetched first
  int64_t scale_lead;
};

/// Lines to prefetch while two groups of 4-bit codes, or one of 8-bit codes, of eight rows are worked on: one for each
/// pair of rows, so that the memory is asked evenly.
struct LinesAhead {
  const uint8_t *first, *again;

  MLXLM_INLINE LinesAhead(const RowBlock& rows, int64_t at)
      : first(rows.data + rows.data_lead + at), again(rows.data + rows.data_lead / 2 + at) {}
  MLXLM_INLINE void fetch(int line) const {
    prefetch(first + line * 64);
    prefetch(again + line * 64);
  }
};

/// Bytes of a scale tile's entry: the scales of one weight group of 8 rows, then their biases.
template <DType kType>
constexpr int kEntryBytes = kType == DType::f32 ? 64 : 32;

/// Eight 16-bit scales and biases of 8 rows each, transposed to entries. They are widened at each use: that costs less
/// than storing and loading floats.
MLXLM_INLINE void transpose_scales16(const std::byte* scales, const std::byte* biases, int64_t row_bytes,
                                     std::byte* tile) {
  __m256i a[8], b[8];
  MLXLM_UNROLL
  for (int i = 0; i < 8; ++i) {
    const __m256i low = _mm256_castsi128_si256(load128(scales + i * row_bytes));
    a[i] = _mm256_inserti128_si256(low, load128(biases + i * row_bytes), 1);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_unpacklo_epi32(b[i], b[i + 2]);
    a[i + 1] = _mm256_unpackhi_epi32(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi32(b[i + 1], b[i + 3]);
    a[i + 3] = _mm256_unpackhi_epi32(b[i + 1], b[i + 3]);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm256_unpacklo_epi64(a[i], a[i + 4]);
    b[2 * i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 4]);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 8; ++i) store256(tile + i * 32, b[i]);
}

MLXLM_INLINE void transpose_scales32(const std::byte* p, int64_t row_bytes, std::byte* out) {
  __m256 v[8];
  MLXLM_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = load_scales8<DType::f32>(p + i * row_bytes);
  transpose8(v);
  MLXLM_UNROLL
  for (int i = 0; i < 8; ++i) _mm256_store_ps(reinterpret_cast<float*>(out + i * 64), v[i]);
}

/// Fills the tile for weight groups that start at `first` and returns where `first` is in it: the last tile of a row
/// overlaps the one before. Fetches the same part of the rows ahead.
template <DType kType>
MLXLM_INLINE int fill_scales(const RowBlock& rows, int64_t first, int64_t weight_groups, std::byte* tile) {
  constexpr int kSize = kType == DType::f32 ? 4 : 2;
  const int64_t ahead = rows.scale_lead + first * kRowTile * kSize;
  for (int i = 0; i < kScaleGroups * kRowTile * kSize; i += 64) {
    prefetch(rows.scales + ahead + i);
    prefetch(rows.biases + ahead + i);
  }
  if (weight_groups < kScaleGroups) {
    for (int64_t g = 0; g < weight_groups; ++g) {
      for (int64_t r = 0; r < kRowTile; ++r) {
        std::byte* entry = tile + g * kEntryBytes<kType> + r * kSize;
        std::memcpy(entry, rows.scales + r * rows.scale_row_bytes + g * kSize, kSize);
        std::memcpy(entry + kRowTile * kSize, rows.biases + r * rows.scale_row_bytes + g * kSize, kSize);
      }
    }
    return 0;
  }
  const int64_t from = first + kScaleGroups > weight_groups ? weight_groups - kScaleGroups : first;
  const std::byte *scales = rows.scales + from * kSize, *biases = rows.biases + from * kSize;
  if constexpr (kType == DType::f32) {
    transpose_scales32(scales, rows.scale_row_bytes, tile);
    transpose_scales32(biases, rows.scale_row_bytes, tile + 32);
  } else {
    transpose_scales16(scales, biases, rows.scale_row_bytes, tile);
  }
  return static_cast<int>(first - from);
}

/// One step of the float chain of 8 rows: dot products of one group, with that group's scales and biases.
/// `entry` is of the scale tile, `x_scale_sum` the group's scale and sum.
template <DType kType>
MLXLM_INLINE __m256 chain(__m256 acc, __m256i dot, const std::byte* entry, const float* x_scale_sum) {
  const __m256 scale = load_scales8<kType>(entry), bias = load_scales8<kType>(entry + kEntryBytes<kType> / 2);
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scale, _mm256_set1_ps(x_scale_sum[0])), acc);
  return _mm256_fmadd_ps(bias, _mm256_set1_ps(x_scale_sum[1]), acc);
}

MLXLM_INLINE __m256i add_pairs16(__m256i a, __m256i b) {
  return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
MLXLM_INLINE __m256i add_pairs32(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
MLXLM_INLINE __m256i add_quads16(__m256i a, __m256i b) {
  return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
MLXLM_INLINE __m256i add_quads32(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
MLXLM_INLINE __m256i add_halves(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/// Two groups of 4-bit codes: dot[t][0] and dot[t][1] for 8 rows. With one group left (kGroups = 1) only dot[t][0]
/// counts, and nothing is prefetched. int16 holds the sum of a group: 32 · 15 · 127 / 2 lanes.
template <int kTokens, int kGroups>
MLXLM_INLINE void dot_nibbles(const uint8_t* q, int64_t row_bytes, const std::byte* x, int64_t x_stride,
                              const LinesAhead& ahead, __m256i (&dot)[kTokens][2]) {
  const __m256i low = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
  __m256i even[kTokens], odd[kTokens], pair[kTokens][4];
  MLXLM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    const __m256i x0 = load256(x + t * x_stride);
    const __m256i x1 = kGroups == 2 ? load256(x + t * x_stride + kGroup) : x0;
    even[t] = _mm256_permute2x128_si256(x0, x1, 0x20);
    odd[t] = _mm256_permute2x128_si256(x0, x1, 0x31);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 4; ++i) {  // pair by pair, pinned in order so that 16 registers suffice
    if constexpr (kGroups == 2) ahead.fetch(i);
    const uint8_t *p0 = q + 2 * i * row_bytes, *p1 = p0 + row_bytes;
    const __m256i v0 = kGroups == 2 ? load256(p0) : _mm256_zextsi128_si256(load128(p0));
    const __m256i v1 = kGroups == 2 ? load256(p1) : _mm256_zextsi128_si256(load128(p1));
    const __m256i even0 = _mm256_and_si256(v0, low), odd0 = _mm256_and_si256(_mm256_srli_epi16(v0, 4), low);
    const __m256i even1 = _mm256_and_si256(v1, low), odd1 = _mm256_and_si256(_mm256_srli_epi16(v1, 4), low);
    MLXLM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(even0, even[t]), _mm256_maddubs_epi16(odd0, odd[t]));
      const __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(even1, even[t]), _mm256_maddubs_epi16(odd1, odd[t]));
      pair[t][i] = add_pairs16(a, b);
      pin(pair[t][i]);
    }
  }
  MLXLM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    const __m256i a = _mm256_madd_epi16(add_quads16(pair[t][0], pair[t][1]), one);
    const __m256i b = _mm256_madd_epi16(add_quads16(pair[t][2], pair[t][3]), one);
    dot[t][0] = _mm256_permute2x128_si256(a, b, 0x20);
    dot[t][1] = _mm256_permute2x128_si256(a, b, 0x31);
  }
}

/// One group of unpacked codes of at most 6 bits: int16 holds 4 products (4 · 63 · 127).
template <int kTokens>
MLXLM_INLINE void dot_unpacked(const uint8_t* q, int64_t row_stride, const std::byte* x, int64_t x_stride,
                               __m256i (&dot)[kTokens]) {
  const __m256i one = _mm256_set1_epi16(1);
  __m256i pair[kTokens][4];
  MLXLM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const __m256i v0 = load256(q + 2 * i * row_stride), v1 = load256(q + (2 * i + 1) * row_stride);
    MLXLM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m256i xv = load256(x + t * x_stride);
      pair[t][i] = add_pairs16(_mm256_maddubs_epi16(v0, xv), _mm256_maddubs_epi16(v1, xv));
      pair[t][i] = _mm256_madd_epi16(pair[t][i], one);
      pin(pair[t][i]);
    }
  }
  MLXLM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    dot[t] = add_halves(add_quads32(pair[t][0], pair[t][1]), add_quads32(pair[t][2], pair[t][3]));
  }
}

/// One group of 8-bit codes, widened: one product of maddubs could overflow its pair.
template <int kTokens>
MLXLM_INLINE void dot_bytes(const uint8_t* q, int64_t row_bytes, const std::byte* x, int64_t x_stride,
                            const LinesAhead& ahead, __m256i (&dot)[kTokens]) {
  const __m256i low = _mm256_set1_epi16(255);
  __m256i even[kTokens], odd[kTokens], pair[kTokens][4];
  MLXLM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    const __m256i v = load256(x + t * x_stride);
    even[t] = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
    odd[t] = _mm256_srai_epi16(v, 8);
  }
  MLXLM_UNROLL
  for (int i = 0; i < 4; ++i) {
    ahead.fetch(i);
    const __m256i v0 = load256(q + 2 * i * row_bytes), v1 = load256(q + (2 * i + 1) * row_bytes);
    const __m256i even0 = _mm256_and_si256(v0, low), odd0 = _mm256_srli_epi16(v0, 8);
    const __m256i even1 = _mm256_and_si256(v1, low), odd1 = _mm256_srli_epi16(v1, 8);
    MLXLM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m256i a = _mm256_add_epi32(_mm256_madd_epi16(even0, even[t]), _mm256_madd_epi16(odd0, odd[t]));
      const __m256i b = _mm256_add_epi32(_mm256_madd_epi16(even1, even[t]), _mm256_madd_epi16(odd1, odd[t]));
      pair[t][i] = add_pairs32(a, b);
      pin(pair[t][i]);
    }
  }
  MLXLM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    dot[t] = add_halves(add_quads32(pair[t][0], pair[t][1]), add_quads32(pair[t][2], pair[t][3]));
  }
}

/// Eight rows by kTokens tokens; x is the first token's pack.
template <int kTokens, Codes kCodes, DType kType>
MLXLM_NOINLINE void gemv_block(const Matrix& w, const RowBlock& rows, const std::byte* x, GemvScratch& s,
                               __m256 (&acc)[kTokens]) {
  const int64_t groups = w.cols / kGroup, weight_groups = w.cols / w.group_size, x_stride = groups * kGroupBytes;
  const int repeat_shift = w.group_size == 32 ? 0 : w.group_size == 64 ? 1 : 2;
  const int chunk = kScaleGroups << repeat_shift;
  for (int64_t g0 = 0; g0 < groups; g0 += chunk) {
    const int count = static_cast<int>(groups - g0 < chunk ? groups - g0 : chunk);
    const int shift = fill_scales<kType>(rows, g0 >> repeat_shift, weight_groups, s.scales) << repeat_shift;
    if constexpr (kCodes == Codes::unpacked) {
      unpack_rows(w.bits, rows.data + g0 * 4 * w.bits, rows.row_bytes, kPanelRows, count, rows.end, rows.data_lead,
                  s.codes);
    }
    const auto* x_scales = reinterpret_cast<const float*>(x + groups * kGroup) + g0 * 2;
    if constexpr (kCodes == Codes::nibbles) {
      const int second = repeat_shift == 0 ? kEntryBytes<kType> : 0;  // from a pair's first entry to its second
      __m256i dot[kTokens][2];
      int g = 0;
      const uint8_t* q = rows.data + g0 * 16;
      const std::byte* xg = x + g0 * kGroup;
      for (; g + 2 <= count; g += 2, q += 32, xg += 2 * kGroup) {
        dot_nibbles<kTokens, 2>(q, rows.row_bytes, xg, x_stride, LinesAhead(rows, (g0 + g) * 16 * kRowTile), dot);
        const std::byte* entry = s.scales + ((g + shift) >> repeat_shift) * kEntryBytes<kType>;
        MLXLM_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          const float* xs = x_scales + t * (x_stride / 4) + g * 2;
          acc[t] = chain<kType>(acc[t], dot[t][0], entry, xs);
          acc[t] = chain<kType>(acc[t], dot[t][1], entry + second, xs + 2);
        }
      }
      if (g < count) {
        dot_nibbles<kTokens, 1>(q, rows.row_bytes, xg, x_stride, LinesAhead(rows, 0), dot);
        const std::byte* entry = s.scales + ((g + shift) >> repeat_shift) * kEntryBytes<kType>;
        MLXLM_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          acc[t] = chain<kType>(acc[t], dot[t][0], entry, x_scales + t * (x_stride / 4) + g * 2);
        }
      }
    } else {
      for (int g = 0; g < count; ++g) {
        __m256i dot[kTokens];
        const std::byte* xg = x + (g0 + g) * kGroup;
        if constexpr (kCodes == Codes::unpacked) {
          dot_unpacked<kTokens>(s.codes + g * kPanelStride, kGroup, xg, x_stride, dot);
        } else {
          const LinesAhead ahead(rows, (g0 + g) * kGroup * kRowTile);
          dot_bytes<kTokens>(rows.data + (g0 + g) * kGroup, rows.row_bytes, xg, x_stride, ahead, dot);
        }
        const std::byte* entry = s.scales + ((g + shift) >> repeat_shift) * kEntryBytes<kType>;
        MLXLM_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          acc[t] = chain<kType>(acc[t], dot[t], entry, x_scales + t * (x_stride / 4) + g * 2);
        }
      }
    }
  }
}

template <int kTokens, Codes kCodes, DType kType>
MLXLM_INLINE void gemv_rows(const Matrix& w, const std::byte* x, int64_t lo, int64_t hi, float* out, int64_t out_stride,
                            GemvScratch& s) {
  const int64_t row_bytes = w.cols * w.bits / 8;
  const int64_t scale_bytes = w.cols / w.group_size * (kType == DType::f32 ? 4 : 2);
  const int64_t blocks_ahead = (kPrefetchLead + kRowTile * row_bytes - 1) / (kRowTile * row_bytes) * 2;
  const auto* data = reinterpret_cast<const uint8_t*>(w.data);
  for (int64_t n = lo; n < hi;) {
    const bool whole = hi - n >= kRowTile;
    const RowBlock rows = {.data = data + n * row_bytes,
                           .end = data + w.rows * row_bytes,
                           .row_bytes = whole ? row_bytes : 0,
                           .scales = w.scales + n * scale_bytes,
                           .biases = w.biases + n * scale_bytes,
                           .scale_row_bytes = whole ? scale_bytes : 0,
                           .data_lead = blocks_ahead * kRowTile * row_bytes,
                           .scale_lead = blocks_ahead * kRowTile * scale_bytes};
    __m256 acc[kTokens];
    for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
    gemv_block<kTokens, kCodes, kType>(w, rows, x, s, acc);
    for (int t = 0; t < kTokens; ++t) {
      float* to = out + t * out_stride + n;
      if (whole) {
        _mm256_storeu_ps(to, acc[t]);
      } else {
        *to = _mm256_cvtss_f32(acc[t]);
      }
    }
    n += whole ? kRowTile : 1;
  }
}

template <int kTokens, Codes kCodes>
MLXLM_INLINE void gemv_typed(const Matrix& w, const std::byte* x, int64_t lo, int64_t hi, float* out,
                             int64_t out_stride, GemvScratch& s) {
  switch (w.dtype) {
    case DType::f16:
      return gemv_rows<kTokens, kCodes, DType::f16>(w, x, lo, hi, out, out_stride, s);
    case DType::bf16:
      return gemv_rows<kTokens, kCodes, DType::bf16>(w, x, lo, hi, out, out_stride, s);
    default:
      return gemv_rows<kTokens, kCodes, DType::f32>(w, x, lo, hi, out, out_stride, s);
  }
}

template <int kTokens>
MLXLM_INLINE void gemv(const Matrix& w, const std::byte* x, int64_t lo, int64_t hi, float* out, int64_t out_stride,
                       GemvScratch& s) {
  if (w.bits == 4) return gemv_typed<kTokens, Codes::nibbles>(w, x, lo, hi, out, out_stride, s);
  if (w.bits == 8) return gemv_typed<kTokens, Codes::bytes>(w, x, lo, hi, out, out_stride, s);
  return gemv_typed<kTokens, Codes::unpacked>(w, x, lo, hi, out, out_stride, s);
}

}  // namespace
}  // namespace mlxlm::avx2
