// Products with many tokens: lanes are 8 tokens, weight codes are broadcast four at a time.
#pragma once

#include "kernels/avx2/affine_unpack.h"

namespace mlxlm::avx2 {
namespace {

/// Rows unpacked at once. With kChunkGroups, 48 to 96 KiB of bytes stay in L2 while all token tiles pass, and one
/// tile's activations (20 KiB) stay in L1 while all rows pass. Halves of a thread's rows in most models are multiples
/// of 48.
constexpr int kBlockRows = 48;
/// Rows unpacked at once for a single tile: the codes pass once, so they should still be in L1.
constexpr int kSingleTileRows = 16;
/// 1,024 values of K; a multiple of every weight group.
constexpr int kChunkGroups = 32;
/// Tokens whose results (96 KiB of floats) stay in L2 while K is walked.
constexpr int64_t kBlockTokens = 512;

struct GemmScratch {
  alignas(64) uint8_t codes[kBlockRows * kChunkGroups * kGroup];  ///< [panels][groups][kPanelRows][32]
  float scales[kBlockRows * kChunkGroups];                        ///< [rows][kChunkGroups]
  float biases[kBlockRows * kChunkGroups];
  float acc[kBlockRows * kBlockTokens];  ///< [tiles][rows][tokens of the tile]
};
static_assert(sizeof(GemmScratch) + 64 <= kScratchBytes);

/// What the next block of rows reads from memory. It is fetched line by line while this block is multiplied: lines
/// asked for at once would be more than a core waits for, and it drops some.
struct Ahead {
  const std::byte* at[3] = {};  ///< codes, scales, biases: what is left of each
  const std::byte* end[3] = {};
  int lines = 0;  ///< for each group that some rows are multiplied by, at most 4

  MLXLM_INLINE void next_line() {
    const int range = at[0] < end[0] ? 0 : at[1] < end[1] ? 1 : 2;
    if (at[range] >= end[range]) return;
    prefetch(at[range]);
    at[range] += 64;
  }
};

/// Of rows [row, row + rows), in steps of `step_rows` rows by one activation group.
MLXLM_INLINE Ahead ahead_of(const Matrix& w, int64_t row, int64_t rows, int step_rows) {
  const int64_t row_bytes = w.cols * w.bits / 8;
  const int64_t scale_bytes = w.cols / w.group_size * (w.dtype == DType::f32 ? 4 : 2);
  const std::byte *data = w.data + row * row_bytes, *scales = w.scales + row * scale_bytes,
                  *biases = w.biases + row * scale_bytes;
  const int64_t step_bytes = step_rows * (row_bytes + 2 * scale_bytes) / (w.cols / kGroup);
  return {{data, scales, biases},
          {data + rows * row_bytes, scales + rows * scale_bytes, biases + rows * scale_bytes},
          static_cast<int>((step_bytes + 63) / 64)};
}

/// Where a tile's results go, once K has been walked.
struct Target {
  float* out = nullptr;  ///< null: not yet
  int64_t stride = 0;    ///< floats between tokens

  /// Fetches the lines that rows [row, row + 16) of `tokens` tokens will be written to: the stores would wait for each.
  MLXLM_INLINE void fetch(int row, int tokens) const {
    if (out == nullptr || row % 16 != 0) return;
    for (int t = 0; t < tokens; ++t) prefetch_to_write(out + t * stride + row);
  }
};

/// One group: kRows rows by kVectors · 8 tokens, in int16, then one step of the float chain of each output.
template <int kVectors, int kRows, int kPlanes>
MLXLM_INLINE void multiply_group(const uint8_t* codes, int64_t row_stride, const float* scales, const float* biases,
                                 const std::byte* x, Ahead& ahead, float* acc) {
  __m256i dot[kRows][kVectors][kPlanes];
  MLXLM_UNROLL
  for (int step = 0; step < 8; ++step) {
    if (step % 2 == 1 && step / 2 < ahead.lines) ahead.next_line();
    __m256i xv[kPlanes][kVectors];
    MLXLM_UNROLL
    for (int i = 0; i < kPlanes * kVectors; ++i) {
      __m256i& v = xv[i / kVectors][i % kVectors];
      v = load256(x + (step * kPlanes * kVectors + i) * 32);
      pin(v);
    }
    MLXLM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      int four;
      std::memcpy(&four, codes + r * row_stride + step * 4, 4);
      const __m256i w = _mm256_set1_epi32(four);
      MLXLM_UNROLL
      for (int i = 0; i < kPlanes * kVectors; ++i) {
        __m256i& sum = dot[r][i % kVectors][i / kVectors];
        const __m256i product = _mm256_maddubs_epi16(w, xv[i / kVectors][i % kVectors]);
        sum = step == 0 ? product : _mm256_add_epi16(sum, product);
        pin(sum);
      }
    }
  }
  const auto* x_scales = reinterpret_cast<const float*>(x + 8 * kVectors * kPlanes * kGroup);
  const float* x_sums = x_scales + 8 * kVectors;
  MLXLM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m256 scale = _mm256_set1_ps(scales[r * kChunkGroups]), bias = _mm256_set1_ps(biases[r * kChunkGroups]);
    MLXLM_UNROLL
    for (int m = 0; m < kVectors; ++m) {
      __m256i sum = _mm256_madd_epi16(dot[r][m][0], _mm256_set1_epi16(1));
      if constexpr (kPlanes == 2) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(dot[r][m][1], _mm256_set1_epi16(16)));
      }
      float* out = acc + (r * kVectors + m) * 8;
      const __m256 factor = _mm256_mul_ps(scale, _mm256_loadu_ps(x_scales + m * 8));
      const __m256 step = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), factor, _mm256_loadu_ps(out));
      _mm256_storeu_ps(out, _mm256_fmadd_ps(bias, _mm256_loadu_ps(x_sums + m * 8), step));
    }
  }
}

/// All panels of a row block by one tile of kVectors · 8 tokens, in kPlanes planes.
template <int kVectors, int kPlanes>
MLXLM_NOINLINE void multiply_tile(const GemmScratch& s, int rows, int groups, Ahead& ahead, const Target& target,
                                  const std::byte* x, float* acc) {
  Ahead next = ahead;                                     // in registers
  constexpr int kRows = kPanelRows / kVectors / kPlanes;  // 8 sums leave registers for activations and products
  for (int row = 0; row < rows; row += kRows) {
    target.fetch(row, kVectors * 8);
    const uint8_t* codes = s.codes + row / kPanelRows * groups * kPanelStride + row % kPanelRows * kGroup;
    const std::byte* xg = x;
    for (int g = 0; g < groups; ++g) {
      multiply_group<kVectors, kRows, kPlanes>(codes, kGroup, s.scales + row * kChunkGroups + g,
                                               s.biases + row * kChunkGroups + g, xg, next, acc);
      codes += kPanelStride;
      xg += 8 * kVectors * (kGroupBytes + (kPlanes - 1) * kGroup);
    }
    acc += kRows * kVectors * 8;
  }
  ahead = next;
}

/// The same for 8-bit codes as they lie in the file, row_bytes apart.
template <int kVectors>
MLXLM_NOINLINE void multiply_tile_in_place(const GemmScratch& s, const uint8_t* codes, int64_t row_bytes, int rows,
                                           int groups, Ahead& ahead, const Target& target, const std::byte* x,
                                           float* acc) {
  Ahead next = ahead;
  constexpr int kRows = kPanelRows / kVectors / 2;
  for (int row = 0; row < rows; row += kRows, codes += kRows * row_bytes) {
    target.fetch(row, kVectors * 8);
    const std::byte* xg = x;
    for (int g = 0; g < groups; ++g) {
      multiply_group<kVectors, kRows, 2>(codes + g * kGroup, row_bytes, s.scales + row * kChunkGroups + g,
                                         s.biases + row * kChunkGroups + g, xg, next, acc);
      xg += 8 * kVectors * (kGroupBytes + kGroup);
    }
    acc += kRows * kVectors * 8;
  }
  ahead = next;
}

/// Eight scales, each kRepeat times, to out.
template <int kRepeat>
MLXLM_INLINE void store_repeated(float* out, __m256 v) {
  for (int i = 0; i < kRepeat; ++i) {
    const __m256i order = kRepeat == 1 ? _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
                          : kRepeat == 2
                              ? _mm256_add_epi32(_mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), _mm256_set1_epi32(4 * i))
                              : _mm256_add_epi32(_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1), _mm256_set1_epi32(2 * i));
    _mm256_storeu_ps(out + 8 * i, kRepeat == 1 ? v : _mm256_permutevar8x32_ps(v, order));
  }
}

/// Scales (or biases) of activation groups [g0, g0 + groups) of `rows` rows to out [rows][kChunkGroups].
template <DType kType, int kRepeat>
MLXLM_NOINLINE void fill_scales(const Matrix& w, const std::byte* base, int64_t row, int rows, int64_t g0, int groups,
                                float* out) {
  constexpr int kSize = kType == DType::f32 ? 4 : 2;
  const int count = groups / kRepeat;
  const int64_t row_size = w.cols / (kGroup * kRepeat) * kSize;
  const std::byte* p = base + row * row_size + g0 / kRepeat * kSize;
  for (int r = 0; r < rows; ++r, p += row_size, out += kChunkGroups) {
    for (int i = 0; i + 8 <= count; i += 8)
      store_repeated<kRepeat>(out + i * kRepeat, load_scales8<kType>(p + i * kSize));
    if (count < 8) {
      for (int i = 0; i < groups; ++i) out[i] = load_scale(kType, p, i / kRepeat);
    } else if (count % 8 != 0) {
      const int i = count - 8;
      store_repeated<kRepeat>(out + i * kRepeat, load_scales8<kType>(p + i * kSize));
    }
  }
}

using FillScales = void (*)(const Matrix&, const std::byte*, int64_t, int, int64_t, int, float*);

template <DType kType>
MLXLM_INLINE FillScales fill_scales_for(int group_size) {
  return group_size == 32 ? fill_scales<kType, 1> : group_size == 64 ? fill_scales<kType, 2> : fill_scales<kType, 4>;
}

/// Unpacks groups [g0, g0 + groups) of rows [row, row + rows). Rows up to a multiple of kPanelRows become zero. 8-bit
/// codes of whole panels stay where they are.
MLXLM_INLINE void fill_block(const Matrix& w, int64_t row, int rows, int64_t g0, int groups, GemmScratch& s) {
  const int64_t row_bytes = w.cols * w.bits / 8;
  const auto* data = reinterpret_cast<const uint8_t*>(w.data);
  if (w.bits != 8 || rows % kPanelRows != 0) {
    const uint8_t* src = data + row * row_bytes + g0 * 4 * w.bits;
    unpack_rows(w.bits, src, row_bytes, rows, groups, data + w.rows * row_bytes, 0, s.codes);
  }
  const FillScales fill = w.dtype == DType::f32   ? fill_scales_for<DType::f32>(w.group_size)
                          : w.dtype == DType::f16 ? fill_scales_for<DType::f16>(w.group_size)
                                                  : fill_scales_for<DType::bf16>(w.group_size);
  fill(w, w.scales, row, rows, g0, groups, s.scales);
  fill(w, w.biases, row, rows, g0, groups, s.biases);
  for (int r = rows; r % kPanelRows != 0; ++r) {
    uint8_t* codes = s.codes + r / kPanelRows * groups * kPanelStride + r % kPanelRows * kGroup;
    for (int g = 0; g < groups; ++g) {
      store256(codes + g * kPanelStride, _mm256_setzero_si256());
      s.scales[r * kChunkGroups + g] = s.biases[r * kChunkGroups + g] = 0;
    }
  }
}

/// One tile's results, [rows][width], to out[token][row].
MLXLM_INLINE void store_tile(const float* acc, int rows, int width, int64_t tokens, float* out, int64_t out_stride) {
  for (int m = 0; m < width; m += 8) {
    for (int r = 0; r < rows; r += 8) {
      __m256 v[8];
      MLXLM_UNROLL
      for (int i = 0; i < 8; ++i) v[i] = _mm256_loadu_ps(acc + (r + i) * width + m);
      transpose8(v);
      for (int i = 0; i < 8 && m + i < tokens; ++i) {
        float* to = out + (m + i) * out_stride + r;
        if (rows - r >= 8) {
          _mm256_storeu_ps(to, v[i]);
        } else {
          std::memcpy(to, &v[i], static_cast<size_t>(rows - r) * sizeof(float));
        }
      }
    }
  }
}

/// One tile by groups [g0, g0 + groups) of a filled block of rows; acc [rows][tile tokens].
MLXLM_INLINE void multiply_filled(const Matrix& w, int64_t row, int rows, int64_t g0, int groups, int vectors,
                                  Ahead& ahead, const Target& target, const std::byte* x, float* acc,
                                  const GemmScratch& s) {
  if (w.bits == 8 && rows % kPanelRows == 0) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(w.data) + row * w.cols + g0 * kGroup;
    const auto multiply = vectors == 1 ? multiply_tile_in_place<1> : multiply_tile_in_place<2>;
    return multiply(s, codes, w.cols, rows, groups, ahead, target, x, acc);
  }
  const auto multiply = w.bits <= 4    ? vectors == 1 ? multiply_tile<1, 1> : multiply_tile<2, 1>
                           : vectors == 1 ? multiply_tile<1, 2>
                                       : multiply_tile<2, 2>;
  multiply(s, (rows + kPanelRows - 1) / kPanelRows * kPanelRows, groups, ahead, target, x, acc);
}

/// Tokens [t0, t0 + tokens) of the pack, a block; all rows [lo, hi).
MLXLM_INLINE void gemm_block(const Matrix& w, const std::byte* packed, int64_t all_tokens, int64_t t0, int64_t tokens,
                             int64_t lo, int64_t hi, float* out, int64_t out_stride, GemmScratch& s) {
  const int64_t groups = w.cols / kGroup, token_bytes = group_bytes(w.bits <= 4 ? kPlain : kSplit, 8);
  const int64_t block_rows = tokens <= 16 ? kSingleTileRows : kBlockRows;
  const int step_rows = kPanelRows / static_cast<int>(tile_width(all_tokens, t0) / 8) / (w.bits <= 4 ? 1 : 2);
  for (int64_t row = lo; row < hi; row += block_rows) {
    const int rows = static_cast<int>(hi - row < block_rows ? hi - row : block_rows), padded = (rows + 7) / 8 * 8;
    const int64_t next = row + rows;
    // The first tile fetches what the next block needs.
    Ahead ahead = ahead_of(w, next, hi - next < block_rows ? hi - next : block_rows, step_rows), nothing;
    for (int64_t g0 = 0; g0 < groups; g0 += kChunkGroups) {
      const int count = static_cast<int>(groups - g0 < kChunkGroups ? groups - g0 : kChunkGroups);
      const bool last = g0 + count == groups;
      fill_block(w, row, rows, g0, count, s);
      for (int64_t t = t0; t < t0 + tokens; t += 16) {
        const int width = static_cast<int>(tile_width(all_tokens, t));
        const std::byte* x = packed + (t * groups + g0 * width) * token_bytes;  // tiles before it are full
        // Where K is walked at once, a tile's sums stay in L1.
        float* acc = s.acc + (groups > kChunkGroups ? (t - t0) * padded : 0);
        const Target target = {last ? out + t * out_stride + row : nullptr, out_stride};
        for (int i = 0; g0 == 0 && i < padded * width; i += 8) _mm256_storeu_ps(acc + i, _mm256_setzero_ps());
        multiply_filled(w, row, rows, g0, count, width / 8, t == t0 ? ahead : nothing, target, x, acc, s);
        if (last) store_tile(acc, rows, width, t0 + tokens - t, target.out, out_stride);
      }
    }
  }
}

MLXLM_INLINE void gemm(const Matrix& w, const std::byte* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                       int64_t out_stride, GemmScratch& s) {
  for (int64_t t0 = 0; t0 < tokens; t0 += kBlockTokens) {
    const int64_t count = tokens - t0 < kBlockTokens ? tokens - t0 : kBlockTokens;
    gemm_block(w, packed, tokens, t0, count, lo, hi, out, out_stride, s);
  }
}

}  // namespace
}  // namespace mlxlm::avx2
