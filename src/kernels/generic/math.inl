// Elementary functions on eight lanes. The polynomials are weighted least-squares fits on the stated intervals, driven
// towards equal ripples and rounded to float; the errors in the comments include the evaluation.

/// The smallest x whose e^x is a normal float (at least 2^-126); below it e^x is 0.
constexpr float kExpLowest = -87.33654f;
/// The largest x whose e^x is finite; above it e^x is +inf.
constexpr float kExpHighest = 88.722832f;

/// x = n·ln 2 + r with |r| ≤ ln 2 / 2 (and a rounding); e^r, and the float whose low bits hold n + 127.
struct ExpParts {
  F8 mantissa;
  F8 shifted;
};
MLXLM_INLINE ExpParts exp_parts(F8 x) {
  // Adding 1.5 · 2^23 leaves the rounded integer in the low bits; 127 more is the exponent's bias.
  const F8 magic = splat(12582912.0f + 127.0f);
  const F8 shifted = fma(x, splat(1.44269504f), magic);
  const F8 n = shifted - magic;
  F8 r = fnma(n, splat(0.693145751953125f), x);  // ln 2 to 16 bits, so n times it is exact
  r = fnma(n, splat(1.42860677e-6f), r);
  F8 p = splat(1.381302020e-03f);
  p = fma(p, r, splat(8.369429968e-03f));
  p = fma(p, r, splat(4.166845977e-02f));
  p = fma(p, r, splat(1.666651517e-01f));
  p = fma(p, r, splat(4.999999404e-01f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return {p, shifted};
}

/// e^x for x at most 88 (larger x give garbage): within 1.5 ulp, 0 below kExpLowest, NaN for NaN.
MLXLM_INLINE F8 exp_limited(F8 x) {
  const ExpParts parts = exp_parts(x);
  const F8 power = from_bits(shift_left<23>(bits_of(parts.shifted)));
  return zero_where(less(x, splat(kExpLowest)), parts.mantissa * power);
}

/// e^x for every x: the bits of exp_limited where both are defined, +inf above kExpHighest.
MLXLM_INLINE F8 exp(F8 x) {
  const ExpParts parts = exp_parts(x);
  const M8 large = less(splat(88.0f), x);  // 2^n may be 2^128 there: half of it, twice
  const F8 shifted = parts.shifted - select(large, splat(1.0f), splat(0.0f));
  const F8 power = from_bits(shift_left<23>(bits_of(shifted)));
  const F8 result = parts.mantissa * power * select(large, splat(2.0f), splat(1.0f));
  const F8 capped = select(less(splat(kExpHighest), x), splat(__builtin_inff()), result);
  return zero_where(less(x, splat(kExpLowest)), capped);
}

/// Natural logarithm of x ≥ 0, within 2 ulp: −inf at 0, NaN for NaN and negative values, +inf at +inf. Subnormal x
/// count as 0.
MLXLM_INLINE F8 log(F8 x) {
  // x = 2^e · m with m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) carries into the exponent just there.
  const I8 origin = splat_int(0x3f3504f3);
  const I8 offset = bits_of(x) - origin;
  const F8 e = to_float(shift_right<23>(offset));
  const F8 m = from_bits(bits_of(x) - shift_left<23>(shift_right<23>(offset)));
  const F8 f = m - splat(1.0f);
  F8 p = splat(-7.630941272e-02f);
  p = fma(p, f, splat(1.276012659e-01f));
  p = fma(p, f, splat(-1.316084713e-01f));
  p = fma(p, f, splat(1.420200020e-01f));
  p = fma(p, f, splat(-1.662331223e-01f));
  p = fma(p, f, splat(2.000121623e-01f));
  p = fma(p, f, splat(-2.500082254e-01f));
  p = fma(p, f, splat(3.333333135e-01f));
  const F8 f2 = f * f;
  F8 tail = fma(f2 * f, p, e * splat(1.42860677e-6f));
  tail = fma(f2, splat(-0.5f), tail);
  const F8 result = fma(e, splat(0.693145751953125f), f + tail);
  const F8 finite = select(less(x, splat(__builtin_inff())), result, x);  // +inf and NaN as they are
  const F8 positive = select(less(x, splat(0x1p-126f)), splat(-__builtin_inff()), finite);
  return select(less(x, splat(0.0f)), splat(__builtin_nanf("")), positive);
}

/// Hyperbolic tangent, within 4 ulp; ±1 beyond 9.02.
MLXLM_INLINE F8 tanh(F8 x) {
  const F8 a = abs(x);
  const F8 a2 = a * a;
  F8 p = splat(-5.705183372e-03f);  // on [0, 0.625], in a²
  p = fma(p, a2, splat(2.063928545e-02f));
  p = fma(p, a2, splat(-5.373978615e-02f));
  p = fma(p, a2, splat(1.333144307e-01f));
  p = fma(p, a2, splat(-3.333328068e-01f));
  const F8 small = fma(a2 * a, p, a);
  // 1 − 2 / (e^2a + 1) loses digits only near 0. From 9.02 it is 1; larger arguments would leave exp_limited's range.
  const F8 clamped = min(splat(20.0f), a + a);
  const F8 large = splat(1.0f) - splat(2.0f) / (exp_limited(clamped) + splat(1.0f));
  return with_sign(select(less(a, splat(0.625f)), small, large), x);
}

/// erfc(a) for a ≥ 0 as e^(−a·P(a)), absolute error below 1e-7; 0 beyond 6, where it is below 2.2e-17.
MLXLM_INLINE F8 erfc_positive(F8 a) {
  F8 p = splat(-4.983261093e-08f);  // −log(erfc(a)) / a on [0, 6]
  p = fma(p, a, splat(1.520983574e-06f));
  p = fma(p, a, splat(-2.002415931e-05f));
  p = fma(p, a, splat(1.483388332e-04f));
  p = fma(p, a, splat(-6.644412642e-04f));
  p = fma(p, a, splat(1.645550015e-03f));
  p = fma(p, a, splat(-7.906439714e-05f));
  p = fma(p, a, splat(-1.922870427e-02f));
  p = fma(p, a, splat(1.028091013e-01f));
  p = fma(p, a, splat(6.366138458e-01f));
  p = fma(p, a, splat(1.128379464e+00f));
  const F8 value = exp_limited(splat(0.0f) - a * p);
  return zero_where(less(splat(6.0f), a), value);
}

/// x / (1 + e^(−x))
MLXLM_INLINE F8 silu(F8 x) { return x / (splat(1.0f) + exp(splat(0.0f) - x)); }

/// x / 2 · (1 + tanh(u)) with u = sqrt(2/π) · (x + 0.044715 x³), as x / (1 + e^(−2u)): nothing cancels.
MLXLM_INLINE F8 gelu_tanh(F8 x) {
  const F8 cubic = fma(x * x, splat(0.044715f * 1.5957691216f), splat(1.5957691216f));
  return x / (splat(1.0f) + exp(splat(0.0f) - x * cubic));
}

/// x · Φ(x); Φ is erfc / 2 below 0 and 1 − erfc / 2 above, so nothing cancels.
MLXLM_INLINE F8 gelu(F8 x) {
  const F8 half = splat(0.5f) * erfc_positive(abs(x) * splat(0.70710678f));
  return x * select(less(x, splat(0.0f)), half, splat(1.0f) - half);
}
