// Rows of keys and values in a block: elements, or codes with scales and biases (KvLayout says how they lie).

/// Where the pieces of one head's quantised keys or values begin.
template <class Byte>
struct CodedPart {
  Byte* codes;
  Byte* scales;
  Byte* biases;
  Byte* end;
};
template <class Byte>
MLXLM_INLINE CodedPart<Byte> coded_part(Byte* start, int64_t dim, int bits, int64_t groups, int64_t element) {
  Byte* scales = start + dim * bits / 8 * kKvBlockTokens;
  Byte* biases = scales + groups * kKvBlockTokens * element;
  return {start, scales, biases, biases + groups * kKvBlockTokens * element};
}

/// One token's row in a part: byte i of its codes at codes + i·byte_stride, scale g at scales + g·scale_stride.
template <class Byte>
struct CodedRow {
  Byte* codes;
  Byte* scales;
  Byte* biases;
  int64_t byte_stride;
  int64_t scale_stride;
};
template <class Byte>
MLXLM_INLINE CodedRow<Byte> key_row(const CodedPart<Byte>& part, int64_t slot, int64_t element) {
  const int64_t offset = slot * element;
  return {part.codes + slot, part.scales + offset, part.biases + offset, kKvBlockTokens, kKvBlockTokens * element};
}
template <class Byte>
MLXLM_INLINE CodedRow<Byte> value_row(const CodedPart<Byte>& part, int64_t slot, int64_t row_bytes, int64_t groups,
                                      int64_t element) {
  const int64_t offset = slot * groups * element;
  return {part.codes + slot * row_bytes, part.scales + offset, part.biases + offset, 1, element};
}

MLXLM_INLINE float absolute(float x) { return x < 0 ? -x : x; }

/// To the nearest integer, ties to the even one.
MLXLM_INLINE float nearest_integer(float x) {
  const float magnitude = absolute(x);
  if (!(magnitude < 0x1p23f)) return x;  // an integer already, infinite or NaN
  const float rounded = (magnitude + 0x1p23f) - 0x1p23f;
  return x < 0 ? -rounded : rounded;
}

struct AffineScale {
  float scale, bias;
};

/// The scale and bias before they are rounded to the element type; low and high are the group's extremes.
MLXLM_INLINE AffineScale affine_scale(float low, float high, float steps) {
  const float range = (high - low) / steps;
  float scale = range > 1e-7f ? range : 1e-7f;
  const bool from_low = absolute(low) > absolute(high);
  const float edge = from_low ? low : high;
  if (!from_low) scale = -scale;
  const float q = nearest_integer(edge / scale);
  if (q == 0) return {scale, 0};
  return {edge / q, edge};
}

template <class Element>
MLXLM_INLINE void store_one(std::byte* p, float x) {
  unsigned char lanes[8 * Element::kSize];
  Element::store(lanes, splat(x));
  std::memcpy(p, lanes, Element::kSize);
}

/// Quantises one row of `dim` values.
template <class Element, int bits>
MLXLM_NOINLINE void store_codes(const float* x, int64_t dim, int64_t group_size, const CodedRow<std::byte>& row) {
  constexpr float kSteps = (1 << bits) - 1;
  alignas(32) float values[128];
  const int64_t groups = dim / group_size;
  for (int64_t g = 0; g < groups; ++g) {
    F8 lowest = splat(__builtin_inff()), highest = splat(-__builtin_inff());
    uint32_t nan = 0;
    for (int64_t i = 0; i < group_size; i += 8) {
      unsigned char lanes[8 * Element::kSize];
      Element::store(lanes, load_f32(x + g * group_size + i));
      const F8 v = Element::load(lanes);
      store_f32(values + i, v);
      lowest = min(v, lowest);
      highest = max(v, highest);
      nan |= mask_bits(is_nan(v));
    }
    AffineScale affine = affine_scale(-max_tree(splat(0) - lowest), max_tree(highest), kSteps);
    if (nan != 0) affine.scale = __builtin_nanf("");
    const F8 scale = splat(affine.scale), bias = splat(affine.bias);
    std::byte* codes = row.codes + g * group_size * bits / 8 * row.byte_stride;
    for (int64_t i = 0; i < group_size; i += 8) {
      // Clipped first (NaN becomes 0), and rounded by adding 2^23: the integer stands in the low bits then.
      const F8 clipped = min(max((load_f32(values + i) - bias) / scale, splat(0)), splat(kSteps));
      unsigned char eight[8];
      store_u8(eight, bits_of(clipped + splat(0x1p23f)) & splat_int(255));
      for (int j = 0; j < bits; ++j, codes += row.byte_stride) {
        *codes = static_cast<std::byte>(bits == 8 ? eight[j] : eight[2 * j % 8] | eight[(2 * j + 1) % 8] << 4);
      }
    }
    store_one<Element>(row.scales + g * row.scale_stride, affine.scale);
    store_one<Element>(row.biases + g * row.scale_stride, affine.bias);
  }
}

template <class Element, int bits>
MLXLM_NOINLINE void load_code_row(const CodedRow<const std::byte>& row, int64_t dim, int64_t group_size, float* out) {
  for (int64_t i = 0; i < dim; i += 8) {
    const int64_t g = i / group_size * row.scale_stride;
    const F8 scale = splat(Element::load_one(row.scales + g)), bias = splat(Element::load_one(row.biases + g));
    unsigned char eight[bits];
    const std::byte* codes = row.codes + i * bits / 8 * row.byte_stride;
    for (int j = 0; j < bits; ++j) eight[j] = static_cast<unsigned char>(codes[j * row.byte_stride]);
    store_f32(out + i, fma(load_codes<bits>(eight), scale, bias));
  }
}

/// Calls f(key row, value row, head) for every head of a layout with codes.
template <class Element, int bits, class Byte, class Function>
MLXLM_INLINE void each_coded_head(const KvLayout& layout, Byte* layer, int64_t slot, Function f) {
  const int64_t key_groups = layout.head_dim / layout.group_size, value_groups = layout.value_dim / layout.group_size;
  for (int64_t h = 0; h < layout.n_kv_heads; ++h) {
    const CodedPart<Byte> keys = coded_part(layer, layout.head_dim, bits, key_groups, Element::kSize);
    const CodedPart<Byte> values = coded_part(keys.end, layout.value_dim, bits, value_groups, Element::kSize);
    f(key_row(keys, slot, Element::kSize),
      value_row(values, slot, layout.value_dim * bits / 8, value_groups, Element::kSize), h);
    layer = values.end;
  }
}

template <class Element, int bits>
MLXLM_INLINE void kv_store_codes(const KvLayout& layout, std::byte* layer, int64_t slot, const float* k,
                                 const float* v) {
  each_coded_head<Element, bits>(
      layout, layer, slot, [&](const auto& key, const auto& value, int64_t h) MLXLM_INLINE_LAMBDA {
        store_codes<Element, bits>(k + h * layout.head_dim, layout.head_dim, layout.group_size, key);
        store_codes<Element, bits>(v + h * layout.value_dim, layout.value_dim, layout.group_size, value);
      });
}

template <class Element>
MLXLM_INLINE void kv_store_elements(const KvLayout& layout, std::byte* layer, int64_t slot, const float* k,
                                    const float* v) {
  constexpr int64_t size = Element::kSize;
  for (int64_t h = 0; h < layout.n_kv_heads; ++h) {
    for (int64_t d = 0; d < layout.head_dim; d += 8) {
      unsigned char lanes[8 * size];
      Element::store(lanes, load_f32(k + d));
      for (int64_t i = 0; i < 8; ++i) {
        std::memcpy(layer + ((d + i) * kKvBlockTokens + slot) * size, lanes + i * size, size);
      }
    }
    layer += layout.head_dim * kKvBlockTokens * size;
    for (int64_t d = 0; d < layout.value_dim; d += 8) {
      Element::store(layer + (slot * layout.value_dim + d) * size, load_f32(v + d));
    }
    layer += layout.value_dim * kKvBlockTokens * size;
    k += layout.head_dim;
    v += layout.value_dim;
  }
}

void kv_store(const KvLayout& layout, std::byte* layer, int64_t slot, const float* k, const float* v) {
  with_element(layout.dtype, [&](auto element) {
    using Element = decltype(element);
    if (layout.bits == 8) {
      kv_store_codes<Element, 8>(layout, layer, slot, k, v);
    } else if (layout.bits == 4) {
      kv_store_codes<Element, 4>(layout, layer, slot, k, v);
    } else {
      kv_store_elements<Element>(layout, layer, slot, k, v);
    }
  });
}

template <class Element, int bits>
MLXLM_INLINE void kv_load_codes(const KvLayout& layout, const std::byte* layer, int64_t slot, float* k, float* v) {
  each_coded_head<Element, bits>(
      layout, layer, slot, [&](const auto& key, const auto& value, int64_t h) MLXLM_INLINE_LAMBDA {
        load_code_row<Element, bits>(key, layout.head_dim, layout.group_size, k + h * layout.head_dim);
        load_code_row<Element, bits>(value, layout.value_dim, layout.group_size, v + h * layout.value_dim);
      });
}

template <class Element>
MLXLM_INLINE void kv_load_elements(const KvLayout& layout, const std::byte* layer, int64_t slot, float* k, float* v) {
  constexpr int64_t size = Element::kSize;
  for (int64_t h = 0; h < layout.n_kv_heads; ++h) {
    for (int64_t d = 0; d < layout.head_dim; ++d) {
      k[d] = Element::load_one(layer + (d * kKvBlockTokens + slot) * size);
    }
    layer += layout.head_dim * kKvBlockTokens * size;
    for (int64_t d = 0; d < layout.value_dim; d += 8) {
      store_f32(v + d, Element::load(layer + (slot * layout.value_dim + d) * size));
    }
    layer += layout.value_dim * kKvBlockTokens * size;
    k += layout.head_dim;
    v += layout.value_dim;
  }
}

void kv_load(const KvLayout& layout, const std::byte* layer, int64_t slot, float* k, float* v) {
  with_element(layout.dtype, [&](auto element) {
    using Element = decltype(element);
    if (layout.bits == 8) {
      kv_load_codes<Element, 8>(layout, layer, slot, k, v);
    } else if (layout.bits == 4) {
      kv_load_codes<Element, 4>(layout, layer, slot, k, v);
    } else {
      kv_load_elements<Element>(layout, layer, slot, k, v);
    }
  });
}

// ---- a block of codes in float32, for attention

/// keys [head_dim][64] of the first `tokens` tokens, rounded up to 16 of them. As many bytes of codes from `ahead` on
/// are prefetched.
template <class Element, int bits>
MLXLM_NOINLINE void widen_keys(const CodedPart<const std::byte>& part, int64_t head_dim, int64_t group_size,
                               int64_t tokens, float* keys, const std::byte* ahead) {
  const I8 nibble = splat_int(15);
  const int64_t rows = group_size * bits / 8;  // of 64 bytes, one for each token
  for (int64_t g = 0; g < head_dim / group_size; ++g) {
    const int64_t scales = g * kKvBlockTokens * Element::kSize;
    const std::byte* codes = part.codes + g * rows * kKvBlockTokens;
    float* out = keys + g * group_size * kKvBlockTokens;
    for (int64_t t = 0; t < tokens; t += 16) {
      F8 scale[2], bias[2];
      MLXLM_UNROLL for (int c = 0; c < 2; ++c) {
        scale[c] = Element::load(part.scales + scales + (t + 8 * c) * Element::kSize);
        bias[c] = Element::load(part.biases + scales + (t + 8 * c) * Element::kSize);
      }
      for (int64_t r = 0; r < rows; ++r) {
        if (t == 0) __builtin_prefetch(ahead + (g * rows + r) * kKvBlockTokens);
        MLXLM_UNROLL for (int c = 0; c < 2; ++c) {
          const I8 code = load_u8(codes + r * kKvBlockTokens + t + 8 * c);
          float* to = out + r * (8 / bits) * kKvBlockTokens + t + 8 * c;
          if constexpr (bits == 8) {
            store_f32(to, fma(to_float(code), scale[c], bias[c]));
          } else {
            store_f32(to, fma(to_float(code & nibble), scale[c], bias[c]));
            store_f32(to + kKvBlockTokens, fma(to_float(shift_right<4>(code)), scale[c], bias[c]));
          }
        }
      }
    }
  }
}

/// values [tokens][value_dim]
template <class Element, int bits>
MLXLM_NOINLINE void widen_values(const CodedPart<const std::byte>& part, int64_t value_dim, int64_t group_size,
                                 int64_t tokens, float* values, const std::byte* ahead) {
  const int64_t groups = value_dim / group_size;
  const std::byte* codes = part.codes;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t offset = (t * groups + g) * Element::kSize;
      const F8 scale = splat(Element::load_one(part.scales + offset));
      const F8 bias = splat(Element::load_one(part.biases + offset));
      __builtin_prefetch(ahead + (codes - part.codes));
      for (int64_t i = 0; i < group_size; i += 8, codes += bits, values += 8) {
        store_f32(values, fma(load_codes<bits>(codes), scale, bias));
      }
    }
  }
}
