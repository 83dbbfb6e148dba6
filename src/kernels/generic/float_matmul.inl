// Matrix products in float32 for every weight format.
//
// One output is 16 lanes, two vectors: low holds k ≡ 0 … 7 (mod 16), high k ≡ 8 … 15. Every path below feeds the lanes
// in ascending k and ends with the same tree, so one token alone and many together give the same bits.

// ---- weights as floats

template <class Element>
struct DenseRow {
  const std::byte* data;

  /// Weights k … k + 7.
  MLXLM_INLINE F8 at(int64_t k) const { return Element::load(data + k * Element::kSize); }
  /// Weights k … k + n − 1 for n < 8, the rest 0.
  MLXLM_INLINE F8 some(int64_t k, int64_t n) const { return load_some<Element>(data + k * Element::kSize, n); }
  MLXLM_INLINE void enter_group(int64_t) {}
};

template <class Element>
MLXLM_INLINE float one_element(const std::byte* p) {
  alignas(32) float lanes[8];
  store_f32(lanes, load_some<Element>(p, 1));
  return lanes[0];
}

template <int bits, class Element>
struct AffineRow {
  const std::byte* data;
  const std::byte* scales;
  const std::byte* biases;
  int64_t group_size;
  F8 scale;
  F8 bias;

  MLXLM_INLINE F8 at(int64_t k) const { return fma(load_codes<bits>(data + k / 8 * bits), scale, bias); }
  MLXLM_INLINE F8 some(int64_t, int64_t) const { return splat(0); }  // rows are multiples of 32
  /// k is a multiple of 32 about to be read: group sizes are multiples of it.
  MLXLM_INLINE void enter_group(int64_t k) {
    if (k % group_size != 0) return;
    const int64_t group = k / group_size * Element::kSize;
    scale = splat(one_element<Element>(scales + group));
    bias = splat(one_element<Element>(biases + group));
  }
};

template <class Element>
MLXLM_INLINE DenseRow<Element> dense_row(const Matrix& w, int64_t row) {
  return {w.data + row * w.cols * Element::kSize};
}
template <int bits, class Element>
MLXLM_INLINE AffineRow<bits, Element> affine_row(const Matrix& w, int64_t row) {
  const int64_t offset = row * (w.cols / w.group_size) * Element::kSize;
  return {w.data + row * (w.cols / 8 * bits), w.scales + offset, w.biases + offset, w.group_size, splat(0), splat(0)};
}

/// Calls f with a function (row number → reader of that row) for the matrix's format.
template <class Function>
MLXLM_INLINE void with_rows(const Matrix& w, Function f) {
  with_element(w.dtype, [&](auto element) {
    using Element = decltype(element);
    switch (w.bits) {
      case 0:
        return f([&](int64_t row) MLXLM_INLINE_LAMBDA { return dense_row<Element>(w, row); });
      case 2:
        return f([&](int64_t row) MLXLM_INLINE_LAMBDA { return affine_row<2, Element>(w, row); });
      case 3:
        return f([&](int64_t row) MLXLM_INLINE_LAMBDA { return affine_row<3, Element>(w, row); });
      case 4:
        return f([&](int64_t row) MLXLM_INLINE_LAMBDA { return affine_row<4, Element>(w, row); });
      case 5:
        return f([&](int64_t row) MLXLM_INLINE_LAMBDA { return affine_row<5, Element>(w, row); });
      case 6:
        return f([&](int64_t row) MLXLM_INLINE_LAMBDA { return affine_row<6, Element>(w, row); });
      default:
        return f([&](int64_t row) MLXLM_INLINE_LAMBDA { return affine_row<8, Element>(w, row); });
    }
  });
}

template <class Row>
MLXLM_INLINE void expand_row(Row row, int64_t cols, float* out) {
  int64_t k = 0;
  for (; k + 32 <= cols; k += 32) {
    row.enter_group(k);
    MLXLM_UNROLL for (int j = 0; j < 32; j += 8) store_f32(out + k + j, row.at(k + j));
  }
  for (; k + 8 <= cols; k += 8) store_f32(out + k, row.at(k));
  if (k < cols) store_some(out + k, cols - k, row.some(k, cols - k));
}

void dequantize_row(const Matrix& w, int64_t row, float* out) {
  with_rows(w, [&](auto row_at) { expand_row(row_at(row), w.cols, out); });
}

// ---- one token: weights straight from memory

template <int rows, class RowAt>
MLXLM_INLINE void multiply_rows(RowAt row_at, const float* x, int64_t cols, int64_t first, float* out) {
  auto row = [&]() MLXLM_INLINE_LAMBDA { return row_at(0); };
  using Row = decltype(row());
  Row readers[rows];
  F8 low[rows], high[rows];
  MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
    readers[r] = row_at(first + r);
    low[r] = splat(0);
    high[r] = splat(0);
  }
  int64_t k = 0;
  for (; k + 32 <= cols; k += 32) {
    MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
      readers[r].enter_group(k);
      MLXLM_UNROLL for (int j = 0; j < 32; j += 16) {
        low[r] = fma(readers[r].at(k + j), load_f32(x + k + j), low[r]);
        high[r] = fma(readers[r].at(k + j + 8), load_f32(x + k + j + 8), high[r]);
      }
    }
  }
  for (; k < cols; k += 16) {
    const int64_t rest = cols - k;
    const F8 x_low = rest >= 8 ? load_f32(x + k) : load_some<F32Element>(x + k, rest);
    const F8 x_high = rest >= 16 ? load_f32(x + k + 8) : load_some<F32Element>(x + k + 8, larger(rest - 8, 0));
    MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
      const F8 w_low = rest >= 8 ? readers[r].at(k) : readers[r].some(k, rest);
      const F8 w_high = rest >= 16 ? readers[r].at(k + 8) : readers[r].some(k + 8, larger(rest - 8, 0));
      low[r] = fma(w_low, x_low, low[r]);
      high[r] = fma(w_high, x_high, high[r]);
    }
  }
  MLXLM_UNROLL for (int r = 0; r < rows; ++r) out[first + r] = sum_tree(low[r] + high[r]);
}

MLXLM_INLINE void multiply_one_token(const Matrix& w, const float* x, int64_t lo, int64_t hi, float* out) {
  with_rows(w, [&](auto row_at) {
    int64_t row = lo;
    for (; row + 4 <= hi; row += 4) multiply_rows<4>(row_at, x, w.cols, row, out);
    for (; row < hi; ++row) multiply_rows<1>(row_at, x, w.cols, row, out);
  });
}

void float_matmul(const Matrix& w, const float* x, int64_t tokens, int64_t lo, int64_t hi, float* out,
                  int64_t out_stride, void* /*scratch*/) {
  for (int64_t t = 0; t < tokens; ++t) multiply_one_token(w, x + t * w.cols, lo, hi, out + t * out_stride);
}
