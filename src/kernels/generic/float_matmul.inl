// Matrix products in float32 for every weight format.
//
// One output is 16 lanes, two vectors: low holds k ≡ 0 … 7 (mod 16), high k ≡ 8 … 15. Every path below feeds the lanes
// in ascending k and ends with the same tree, so one token alone and many together give the same bits.

/// 16 lanes.
struct F16Lanes {
  F8 low, high;
};
MLXLM_INLINE float sum_lanes(F16Lanes x) { return sum_tree(x.low + x.high); }

// ---- weights as floats: readers of one row

template <class Element>
struct DenseRow {
  const std::byte* data;

  struct Group {};
  MLXLM_INLINE Group group(int64_t) const { return {}; }
  /// Weights k … k + 7.
  MLXLM_INLINE F8 at(int64_t k, Group) const { return Element::load(data + k * Element::kSize); }
  /// Weights k … k + n − 1 for n < 8, the rest 0.
  MLXLM_INLINE F8 some(int64_t k, int64_t n) const { return load_some<Element>(data + k * Element::kSize, n); }
  MLXLM_INLINE void prefetch(int64_t k) const { __builtin_prefetch(data + k * Element::kSize); }
};

template <int bits>
struct AffineRow {
  const std::byte* data;
  const std::byte* scales;
  const std::byte* biases;
  int group_shift;
  DType dtype;  ///< of scales and biases: looked at once per group, so that it need not multiply the variants

  struct Group {
    F8 scale, bias;
  };
  /// For weights k … k + 31; k is a multiple of 32.
  MLXLM_INLINE Group group(int64_t k) const {
    const int64_t offset = (k >> group_shift) * element_size(dtype);
    return {splat(load_one(dtype, scales + offset)), splat(load_one(dtype, biases + offset))};
  }
  MLXLM_INLINE F8 at(int64_t k, Group g) const { return fma(load_codes<bits>(data + k / 8 * bits), g.scale, g.bias); }
  MLXLM_INLINE F8 some(int64_t, int64_t) const { return splat(0); }  // rows are multiples of 32
  MLXLM_INLINE void prefetch(int64_t k) const { __builtin_prefetch(data + k / 8 * bits); }
};

template <class Element>
struct DenseRows {
  const Matrix& w;
  MLXLM_INLINE DenseRow<Element> operator[](int64_t row) const { return {w.data + row * w.cols * Element::kSize}; }
};

template <int bits>
struct AffineRows {
  const Matrix& w;
  MLXLM_INLINE AffineRow<bits> operator[](int64_t row) const {
    const int shift = w.group_size == 32 ? 5 : w.group_size == 64 ? 6 : 7;
    const int64_t offset = row * (w.cols >> shift) * element_size(w.dtype);
    return {w.data + row * (w.cols / 8 * bits), w.scales + offset, w.biases + offset, shift, w.dtype};
  }
};

/// Calls f with the rows of the matrix's format.
template <class Function>
MLXLM_INLINE void with_rows(const Matrix& w, Function f) {
  switch (w.bits) {
    case 0:
      return with_element(w.dtype, [&](auto element) { f(DenseRows<decltype(element)>{w}); });
    case 2:
      return f(AffineRows<2>{w});
    case 3:
      return f(AffineRows<3>{w});
    case 4:
      return f(AffineRows<4>{w});
    case 5:
      return f(AffineRows<5>{w});
    case 6:
      return f(AffineRows<6>{w});
    default:
      return f(AffineRows<8>{w});
  }
}

/// Weights [first, last) of a row, first a multiple of 32, to out.
template <class Row>
MLXLM_INLINE void expand_row(const Row& row, int64_t first, int64_t last, float* out) {
  int64_t k = first;
  for (; k + 32 <= last; k += 32, out += 32) {
    const auto group = row.group(k);
    MLXLM_UNROLL for (int j = 0; j < 32; j += 8) store_f32(out + j, row.at(k + j, group));
  }
  for (; k + 8 <= last; k += 8, out += 8) store_f32(out, row.at(k, row.group(k)));  // dense rows only
  if (k < last) store_some(out, last - k, row.some(k, last - k));
}

void dequantize_row(const Matrix& w, int64_t row, float* out) {
  with_rows(w, [&](auto rows) { expand_row(rows[row], 0, w.cols, out); });
}

// ---- one token: weights straight from memory

/// What is left of a row of K = cols from k on, fewer than 32 weights, into the lanes.
template <class Row>
MLXLM_NOINLINE F16Lanes finish_lanes(const Row& row, const float* x, int64_t k, int64_t cols, F16Lanes acc) {
  for (; k < cols; k += 16) {
    const int64_t rest = cols - k, high_rest = larger(rest - 8, 0);
    const F8 w_low = rest >= 8 ? row.at(k, row.group(k)) : row.some(k, rest);
    const F8 w_high = high_rest >= 8 ? row.at(k + 8, row.group(k)) : row.some(k + 8, high_rest);
    const F8 x_low = rest >= 8 ? load_f32(x + k) : load_some<F32Element>(x + k, rest);
    const F8 x_high = high_rest >= 8 ? load_f32(x + k + 8) : load_some<F32Element>(x + k + 8, high_rest);
    acc = {fma(w_low, x_low, acc.low), fma(w_high, x_high, acc.high)};
  }
  return acc;
}

/// `count` outputs at once. Prefetches the same columns of the next rows: hardware follows several short rows badly.
template <int count, class Rows>
MLXLM_INLINE void multiply_rows(const Rows& rows, const float* x, int64_t cols, int64_t first, float* out) {
  F16Lanes acc[count];
  MLXLM_UNROLL for (int r = 0; r < count; ++r) acc[r] = {splat(0), splat(0)};
  int64_t k = 0;
  for (; k + 32 <= cols; k += 32) {
    MLXLM_UNROLL for (int r = 0; r < count; ++r) {
      const auto row = rows[first + r];
      const auto group = row.group(k);
      rows[first + r + count].prefetch(k);
      MLXLM_UNROLL for (int j = 0; j < 32; j += 16) {
        acc[r].low = fma(row.at(k + j, group), load_f32(x + k + j), acc[r].low);
        acc[r].high = fma(row.at(k + j + 8, group), load_f32(x + k + j + 8), acc[r].high);
      }
    }
  }
  MLXLM_UNROLL for (int r = 0; r < count; ++r) {
    if (k < cols) acc[r] = finish_lanes(rows[first + r], x, k, cols, acc[r]);
    out[first + r] = sum_lanes(acc[r]);
  }
}

template <class Rows>
MLXLM_NOINLINE void multiply_one_token(const Rows& rows, const float* x, int64_t cols, int64_t lo, int64_t hi,
                                       float* out) {
  int64_t row = lo;
  for (; row + 4 <= hi; row += 4) multiply_rows<4>(rows, x, cols, row, out);
  for (; row < hi; ++row) multiply_rows<1>(rows, x, cols, row, out);
}

// ---- more tokens: a panel of rows as floats in the scratch, then register tiles of 2 tokens × 3 rows

constexpr int kTileTokens = 2;
constexpr int kTileRows = 3;
/// Columns per step of a panel: 8 tokens and 3 rows of it are 22 KB, so the tokens stay in the first-level cache.
constexpr int64_t kPanelCols = 512;
/// Rows lie this many floats further apart than they are long: at a power of two they would share cache sets.
constexpr int64_t kSkew = 16;
/// Tokens swept over a panel before the next step's columns.
constexpr int64_t kPanelTokens = 8;
/// The tokens' columns are copied once per panel: 48 rows keep that at 4 % of the work.
constexpr int64_t kPanelRows = 48;

/// Adds columns [0, cols) of `tokens` rows of x and `rows` rows of w to the lanes of their outputs. Lanes of token t
/// and row n are at lanes + (t·kPanelRows + n)·16.
/// A row of w at `ahead`, needed soon, is prefetched.
template <int tokens, int rows>
MLXLM_NOINLINE void multiply_tile(const float* x, int64_t x_stride, const float* w, int64_t w_stride, int64_t cols,
                                  bool first, float* lanes, const float* ahead) {
  F16Lanes acc[tokens][rows];
  MLXLM_UNROLL for (int t = 0; t < tokens; ++t) {
    MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
      const float* from = lanes + (t * kPanelRows + r) * 16;
      acc[t][r] = first ? F16Lanes{splat(0), splat(0)} : F16Lanes{load_f32(from), load_f32(from + 8)};
    }
  }
  for (int64_t k = 0; k < cols; k += 16) {
    __builtin_prefetch(ahead + k);
    F16Lanes weights[rows];
    MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
      weights[r].low = load_f32(w + r * w_stride + k);
      pin(weights[r].low);
    }
    MLXLM_UNROLL for (int t = 0; t < tokens; ++t) {
      const F8 value = load_f32(x + t * x_stride + k);
      MLXLM_UNROLL for (int r = 0; r < rows; ++r) acc[t][r].low = fma(weights[r].low, value, acc[t][r].low);
    }
    MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
      weights[r].high = load_f32(w + r * w_stride + k + 8);
      pin(weights[r].high);
    }
    MLXLM_UNROLL for (int t = 0; t < tokens; ++t) {
      const F8 value = load_f32(x + t * x_stride + k + 8);
      MLXLM_UNROLL for (int r = 0; r < rows; ++r) acc[t][r].high = fma(weights[r].high, value, acc[t][r].high);
    }
  }
  MLXLM_UNROLL for (int t = 0; t < tokens; ++t) {
    MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
      float* to = lanes + (t * kPanelRows + r) * 16;
      store_f32(to, acc[t][r].low);
      store_f32(to + 8, acc[t][r].high);
    }
  }
}

template <int tokens>
MLXLM_INLINE void multiply_tile_rows(int64_t rows, const float* x, int64_t x_stride, const float* w, int64_t w_stride,
                                     int64_t cols, bool first, float* lanes, const float* ahead) {
  if (rows >= 3) {
    multiply_tile<tokens, 3>(x, x_stride, w, w_stride, cols, first, lanes, ahead);
  } else if (rows == 2) {
    multiply_tile<tokens, 2>(x, x_stride, w, w_stride, cols, first, lanes, ahead);
  } else {
    multiply_tile<tokens, 1>(x, x_stride, w, w_stride, cols, first, lanes, ahead);
  }
}

/// Where things lie in the scratch.
struct PanelScratch {
  float* tokens;   ///< [kPanelTokens, kPanelCols + kSkew]: a step's columns, zeros beyond K
  float* lanes;    ///< [kPanelTokens, kPanelRows, 16]
  float* weights;  ///< [rows, stride], zeros from K to the next multiple of 16
  int64_t rows;    ///< of a panel
  int64_t stride;
};

MLXLM_INLINE PanelScratch make_panel(int64_t cols, void* scratch) {
  PanelScratch panel;
  float* memory = static_cast<float*>(scratch);
  panel.tokens = memory;
  panel.lanes = panel.tokens + kPanelTokens * (kPanelCols + kSkew);
  panel.weights = panel.lanes + kPanelTokens * kPanelRows * 16;
  panel.stride = (cols + 15) / 16 * 16 + kSkew;
  const int64_t free = static_cast<int64_t>(kScratchBytes / sizeof(float)) - (panel.weights - memory);
  // 96K floats, 384 KB, stay in a second-level cache of 512 KB; some rows are worth more than that if K is long.
  const int64_t wanted = larger(98304 / panel.stride, 4 * kTileRows);
  panel.rows = smaller(kPanelRows, smaller(wanted, free / panel.stride));
  if (panel.rows >= kTileRows) panel.rows = panel.rows / kTileRows * kTileRows;
  return panel;
}

/// Copies `width` columns of some tokens, filled up with zeros to a multiple of 16; returns that.
MLXLM_INLINE int64_t copy_tokens(const float* x, int64_t cols, int64_t tokens, int64_t width, float* to) {
  const int64_t padded = (width + 15) / 16 * 16;
  for (int64_t t = 0; t < tokens; ++t, x += cols, to += kPanelCols + kSkew) {
    int64_t i = 0;
    for (; i + 8 <= width; i += 8) store_f32(to + i, load_f32(x + i));
    for (; i < padded; ++i) to[i] = i < width ? x[i] : 0.0f;
  }
  return padded;
}

/// Outputs of `tokens` (at most kPanelTokens) tokens and the panel's `rows` rows.
MLXLM_INLINE void multiply_panel(const PanelScratch& panel, const float* x, int64_t cols, int64_t tokens, int64_t rows,
                                 float* out, int64_t out_stride) {
  constexpr int64_t stride = kPanelCols + kSkew;
  for (int64_t k = 0; k < cols; k += kPanelCols) {
    const int64_t width = copy_tokens(x + k, cols, tokens, smaller(kPanelCols, cols - k), panel.tokens);
    for (int64_t r = 0; r < rows; r += kTileRows) {
      const float* w = panel.weights + r * panel.stride + k;
      float* lanes = panel.lanes + r * 16;
      int64_t t = 0;
      const float* ahead = w + kTileRows * panel.stride;  // the next rows, one for each of the first three tiles
      for (; t + kTileTokens <= tokens; t += kTileTokens) {
        multiply_tile_rows<kTileTokens>(rows - r, panel.tokens + t * stride, stride, w, panel.stride, width, k == 0,
                                        lanes + t * kPanelRows * 16, ahead);
        ahead += t < 2 * kTileTokens ? panel.stride : 0;
      }
      if (t < tokens) {
        multiply_tile_rows<1>(rows - r, panel.tokens + t * stride, stride, w, panel.stride, width, k == 0,
                              lanes + t * kPanelRows * 16, ahead);
      }
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* lanes = panel.lanes + (t * kPanelRows + r) * 16;
      out[t * out_stride + r] = sum_lanes({load_f32(lanes), load_f32(lanes + 8)});
    }
  }
}

template <class Rows>
MLXLM_NOINLINE void expand_panel(const Rows& rows, const PanelScratch& panel, int64_t first, int64_t count,
                                 int64_t cols) {
  for (int64_t r = 0; r < count; ++r) {
    float* out = panel.weights + r * panel.stride;
    expand_row(rows[first + r], 0, cols, out);
    for (int64_t k = cols; k % 16 != 0; ++k) out[k] = 0;
  }
}

void float_matmul(const Matrix& w, const float* x, int64_t tokens, int64_t lo, int64_t hi, float* out,
                  int64_t out_stride, void* scratch) {
  const PanelScratch panel = make_panel(w.cols, scratch);
  if (tokens < 2 || panel.rows == 0) {  // rows too long for the scratch go token by token
    for (int64_t t = 0; t < tokens; ++t) {
      with_rows(w, [&](auto rows) { multiply_one_token(rows, x + t * w.cols, w.cols, lo, hi, out + t * out_stride); });
    }
    return;
  }
  for (int64_t row = lo; row < hi; row += panel.rows) {
    const int64_t count = smaller(panel.rows, hi - row);
    with_rows(w, [&](auto rows) { expand_panel(rows, panel, row, count, w.cols); });
    for (int64_t t = 0; t < tokens; t += kPanelTokens) {
      multiply_panel(panel, x + t * w.cols, w.cols, smaller(kPanelTokens, tokens - t), count,
                     out + t * out_stride + row, out_stride);
    }
  }
}
