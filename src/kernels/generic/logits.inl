// Reductions over a row of logits.

/// Eight candidates for the maximum: 32 values at a time, so that the chains of max do not wait for each other.
MLXLM_INLINE F8 max_lanes(const float* x, int64_t n) {
  const F8 lowest = splat(-__builtin_inff());
  F8 best[4] = {lowest, lowest, lowest, lowest};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    MLXLM_UNROLL for (int j = 0; j < 4; ++j) best[j] = max(load_f32(x + i + 8 * j), best[j]);
  }
  for (; i + 8 <= n; i += 8) best[0] = max(load_f32(x + i), best[0]);
  if (i < n) best[1] = max(load_some<F32Element>(x + i, n - i, -__builtin_inff()), best[1]);
  return max(max(best[0], best[1]), max(best[2], best[3]));
}

float max(const float* x, int64_t n) { return max_tree(max_lanes(x, n)); }

/// Whether any value is NaN or +inf.
MLXLM_INLINE bool any_unusable(const float* x, int64_t n) {
  // x − x would also reject −inf; only what is not below +inf is unusable.
  const F8 inf = splat(__builtin_inff());
  int64_t i = 0;
  uint32_t usable = 0xff;
  for (; i + 32 <= n && usable == 0xff; i += 32) {
    const M8 a = less(load_f32(x + i), inf) & less(load_f32(x + i + 8), inf);
    const M8 b = less(load_f32(x + i + 16), inf) & less(load_f32(x + i + 24), inf);
    usable = mask_bits(a & b);
  }
  for (; i < n && usable == 0xff; ++i) {
    if (!(x[i] < __builtin_inff())) usable = 0;
  }
  return usable != 0xff;
}

int64_t argmax(const float* x, int64_t n) {
  // In pieces that fit the first-level cache, so that memory is read once.
  constexpr int64_t kPiece = 4096;
  float best = -__builtin_inff();
  int64_t best_piece = -1;
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = smaller(kPiece, n - i);
    if (any_unusable(x + i, count)) return -1;
    const float piece = max(x + i, count);
    if (piece > best) {
      best = piece;
      best_piece = i;
    }
  }
  if (best_piece < 0) return -1;
  int64_t i = best_piece;
  while (x[i] != best) ++i;
  return i;
}

float log_sum_exp(const float* x, int64_t n) {
  const float largest = max(x, n);
  const F8 shift = splat(largest == -__builtin_inff() ? 0.0f : largest);  // all −inf: the sum is 0
  F8 low = splat(0), high = splat(0);
  walk16(x, n, -__builtin_inff(), low, high,
         [=](F8 sum, F8 v) MLXLM_INLINE_LAMBDA { return sum + exp_limited(v - shift); });
  alignas(32) float result[8];
  store_f32(result, shift + log(splat(sum_tree(low + high))));
  return result[0];
}
