// Operations on rows of activations.

void rms_norm(const float* x, const float* weight, float* out, int64_t n, float eps) {
  F8 low = splat(0), high = splat(0);
  walk16(x, n, 0, low, high, [](F8 sum, F8 v) MLXLM_INLINE_LAMBDA { return fma(v, v, sum); });
  const float mean = sum_tree(low + high) / static_cast<float>(n);
  const F8 inverse = splat(1.0f / sqrt(mean + eps));
  map_rows(x, weight, out, n, [=](F8 v, F8 w) MLXLM_INLINE_LAMBDA { return v * inverse * w; });
}

void add(float* x, const float* y, int64_t n) {
  map_rows(x, y, x, n, [](F8 a, F8 b) MLXLM_INLINE_LAMBDA { return a + b; });
}

void scale(float* x, float factor, int64_t n) {
  map_rows(x, x, x, n, [=](F8 a, F8) MLXLM_INLINE_LAMBDA { return a * splat(factor); });
}

void gated(Activation activation, const float* gate, const float* up, float* out, int64_t n) {
  switch (activation) {
    case Activation::silu:
      return map_rows(gate, up, out, n, [](F8 g, F8 u) MLXLM_INLINE_LAMBDA { return silu(g) * u; });
    case Activation::gelu_tanh:
      return map_rows(gate, up, out, n, [](F8 g, F8 u) MLXLM_INLINE_LAMBDA { return gelu_tanh(g) * u; });
    case Activation::gelu:
      return map_rows(gate, up, out, n, [](F8 g, F8 u) MLXLM_INLINE_LAMBDA { return gelu(g) * u; });
  }
}

MLXLM_INLINE F8 soft_capped(F8 x, float cap) { return splat(cap) * tanh(x / splat(cap)); }

void softcap(float* x, float cap, int64_t n) {
  map_rows(x, x, x, n, [=](F8 a, F8) MLXLM_INLINE_LAMBDA { return soft_capped(a, cap); });
}

/// One head, pairs (i, i + half).
MLXLM_INLINE void rope_halves(float* x, int64_t half, const float* cos, const float* sin) {
  float* y = x + half;
  int64_t i = 0;
  for (; i + 8 <= half; i += 8) {
    const F8 a = load_f32(x + i), b = load_f32(y + i), c = load_f32(cos + i), s = load_f32(sin + i);
    store_f32(x + i, fma(a, c, splat(0) - b * s));
    store_f32(y + i, fma(a, s, b * c));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = y[i];
    x[i] = fma(a, cos[i], 0.0f - b * sin[i]);
    y[i] = fma(a, sin[i], b * cos[i]);
  }
}

/// One head, pairs (2i, 2i + 1).
MLXLM_INLINE void rope_neighbours(float* x, int64_t half, const float* cos, const float* sin) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = fma(a, cos[i], 0.0f - b * sin[i]);
    x[2 * i + 1] = fma(a, sin[i], b * cos[i]);
  }
}

void rope(float* x, int64_t heads, int64_t head_dim, int64_t half, const float* cos, const float* sin, bool interleaved,
          float factor) {
  for (int64_t h = 0; h < heads; ++h, x += head_dim) {
    if (interleaved) {
      rope_neighbours(x, half, cos, sin);
    } else {
      rope_halves(x, half, cos, sin);
    }
    if (factor != 1.0f) scale(x, factor, head_dim);
  }
}
