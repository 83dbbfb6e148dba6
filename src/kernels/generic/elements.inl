// Element types of weights and of keys and values, and partial vectors.

struct F32Element {
  static constexpr int64_t kSize = 4;
  static MLXLM_INLINE F8 load(const void* p) { return load_f32(p); }
  static MLXLM_INLINE float load_one(const void* p) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  static MLXLM_INLINE void store(void* p, F8 x) { store_f32(p, x); }
};
struct F16Element {
  static constexpr int64_t kSize = 2;
  static MLXLM_INLINE F8 load(const void* p) { return load_f16(p); }
  static MLXLM_INLINE float load_one(const void* p) { return load_one_f16(p); }
  static MLXLM_INLINE void store(void* p, F8 x) { store_f16(p, x); }
};
struct BF16Element {
  static constexpr int64_t kSize = 2;
  static MLXLM_INLINE F8 load(const void* p) { return load_bf16(p); }
  static MLXLM_INLINE float load_one(const void* p) {
    uint16_t brain;
    std::memcpy(&brain, p, sizeof brain);
    return __builtin_bit_cast(float, static_cast<uint32_t>(brain) << 16);
  }
  static MLXLM_INLINE void store(void* p, F8 x) { store_bf16(p, x); }
};

/// Calls f with the element type of dtype, which is f32, f16 or bf16.
template <class Function>
MLXLM_INLINE void with_element(DType dtype, Function f) {
  if (dtype == DType::f16) {
    f(F16Element{});
  } else if (dtype == DType::bf16) {
    f(BF16Element{});
  } else {
    f(F32Element{});
  }
}

/// One value of dtype, which is f32, f16 or bf16.
MLXLM_INLINE float load_one(DType dtype, const void* p) {
  if (dtype == DType::f16) return F16Element::load_one(p);
  if (dtype == DType::bf16) return BF16Element::load_one(p);
  return F32Element::load_one(p);
}
MLXLM_INLINE int64_t element_size(DType dtype) { return dtype == DType::f32 ? 4 : 2; }
MLXLM_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MLXLM_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/// n < 8 elements; the other lanes are `fill`. Reads nothing past them.
template <class Element>
MLXLM_INLINE F8 load_some(const void* p, int64_t n, float fill = 0) {
  alignas(32) unsigned char buffer[8 * Element::kSize];
  Element::store(buffer, splat(fill));
  for (int64_t i = 0; i < n * Element::kSize; ++i) buffer[i] = static_cast<const unsigned char*>(p)[i];
  return Element::load(buffer);
}
MLXLM_INLINE void store_some(float* p, int64_t n, F8 x) {
  alignas(32) float buffer[8];
  store_f32(buffer, x);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

/// out[i] = f(x[i], y[i]) lane by lane.
template <class Function>
MLXLM_INLINE void map_rows(const float* x, const float* y, float* out, int64_t n, Function f) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store_f32(out + i, f(load_f32(x + i), load_f32(y + i)));
  if (i < n) store_some(out + i, n - i, f(load_some<F32Element>(x + i, n - i), load_some<F32Element>(y + i, n - i)));
}

/// 16 lanes: lane l takes f of the values at l, l + 16, …; positions past n count as `fill` in x.
/// step(accumulator, x) is called for the low and the high eight lanes in turn.
template <class Step>
MLXLM_INLINE void walk16(const float* x, int64_t n, float fill, F8& low, F8& high, Step step) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    low = step(low, load_f32(x + i));
    high = step(high, load_f32(x + i + 8));
  }
  if (i == n) return;
  const int64_t rest = n - i;
  low = step(low, rest >= 8 ? load_f32(x + i) : load_some<F32Element>(x + i, rest, fill));
  high = step(high, rest > 8 ? load_some<F32Element>(x + i + 8, rest - 8, fill) : splat(fill));
}
