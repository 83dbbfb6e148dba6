// Storing and loading rows of keys and values: codes against the definition of MLX's affine quantisation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace mlxlm {
namespace {

using Values = std::vector<float>;

float rounded(DType dtype, float x) {
  if (dtype == DType::f32) return x;
  return static_cast<float>(word_value(dtype, nearest_element(dtype, x)));
}

struct Group {
  std::vector<int> codes;
  float scale, bias;  ///< in the element type
};

/// The definition, in float32 and one value at a time.
Group quantize(DType dtype, int bits, Values x) {
  for (float& value : x) value = rounded(dtype, value);
  const float steps = static_cast<float>((1 << bits) - 1);
  const float low = *std::min_element(x.begin(), x.end()), high = *std::max_element(x.begin(), x.end());
  const bool from_low = std::fabs(low) > std::fabs(high);
  float scale = std::max((high - low) / steps, 1e-7f);
  if (!from_low) scale = -scale;
  const float edge = from_low ? low : high;
  const float q = std::rint(edge / scale);
  float bias = 0;
  if (q != 0) {
    scale = edge / q;
    bias = edge;
  }
  Group group;
  for (const float value : x) {
    const float code = std::rint((value - bias) / scale);
    group.codes.push_back(static_cast<int>(std::clamp(code, 0.0f, steps)));
  }
  group.scale = rounded(dtype, scale);
  group.bias = rounded(dtype, bias);
  return group;
}

class KvRows : public ::testing::TestWithParam<DType> {
 protected:
  /// Checks one head's stored row; byte i at codes[i · stride] and so on.
  void check_row(const KvLayout& layout, const float* x, int64_t dim, const std::byte* codes, int64_t byte_stride,
                 const std::byte* scales, int64_t scale_stride, const float* loaded) const {
    const auto element = static_cast<int64_t>(dtype_size(layout.dtype));
    const std::byte* biases = scales + layout.scale_bytes(dim);
    for (int64_t g = 0; g < dim / layout.group_size; ++g) {
      const float* values = x + g * layout.group_size;
      const Group expected = quantize(layout.dtype, layout.bits, Values(values, values + layout.group_size));
      const auto scale = element_value(layout.dtype, scales + g * scale_stride * element);
      const auto bias = element_value(layout.dtype, biases + g * scale_stride * element);
      ASSERT_EQ(scale, expected.scale);
      ASSERT_EQ(bias, expected.bias);
      for (int64_t i = 0; i < layout.group_size; ++i) {
        const int64_t bit = (g * layout.group_size + i) * layout.bits;
        const int byte = static_cast<int>(codes[bit / 8 * byte_stride]);
        const int code = byte >> bit % 8 & ((1 << layout.bits) - 1);
        ASSERT_EQ(code, expected.codes[static_cast<size_t>(i)]) << "value " << values[i];
        ASSERT_EQ(loaded[g * layout.group_size + i], std::fma(static_cast<float>(code), expected.scale, expected.bias));
      }
    }
  }

  void check(const Kernels& kernels, const KvLayout& layout, int64_t slot, const Values& k, const Values& v) const {
    std::vector<std::byte> layer(static_cast<size_t>(layout.layer_bytes()), std::byte{0x55});
    kernels.kv_store(layout, layer.data(), slot, k.data(), v.data());
    Values loaded_k(k.size(), -1), loaded_v(v.size(), -1);
    kernels.kv_load(layout, layer.data(), slot, loaded_k.data(), loaded_v.data());
    const auto element = static_cast<int64_t>(dtype_size(layout.dtype));
    const int64_t value_groups = layout.value_dim / layout.group_size;
    for (int64_t h = 0; h < layout.n_kv_heads; ++h) {
      SCOPED_TRACE(testing::Message() << kernels.isa << ", bits " << layout.bits << ", group " << layout.group_size
                                      << ", slot " << slot << ", head " << h);
      const std::byte* keys = layer.data() + h * layout.head_bytes();
      const std::byte* values = keys + layout.key_bytes();
      check_row(layout, k.data() + h * layout.head_dim, layout.head_dim, keys + slot, 64,
                keys + layout.code_bytes(layout.head_dim) + slot * element, 64, loaded_k.data() + h * layout.head_dim);
      check_row(layout, v.data() + h * layout.value_dim, layout.value_dim,
                values + slot * layout.value_dim * layout.bits / 8, 1,
                values + layout.code_bytes(layout.value_dim) + slot * value_groups * element, 1,
                loaded_v.data() + h * layout.value_dim);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Types, KvRows, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& param) { return dtype_name(param.param); });

TEST_P(KvRows, AreQuantisedAsMlxDoes) {
  TestRandom random(31);
  for (const Kernels* kernels : available_kernels()) {
    for (int bits : {4, 8}) {
      for (int group_size : {32, 64, 128}) {
        const KvLayout layout{2, 128, 2 * group_size, GetParam(), bits, group_size};
        for (int64_t slot : {0, 1, 37, 63}) {
          // Large and tiny values, and groups far from zero, where the scale's floor and the edge matter.
          const float size = std::ldexp(1.0f, static_cast<int>(random.integer(-26, 8)));
          Values k = random.vector(2 * layout.head_dim, size), v = random.vector(2 * layout.value_dim, size);
          if (slot == 37) {
            for (float& x : k) x += 8 * size;
          }
          check(*kernels, layout, slot, k, v);
        }
      }
    }
  }
}

TEST_P(KvRows, OfEqualValuesAndZeros) {
  for (const Kernels* kernels : available_kernels()) {
    for (int bits : {4, 8}) {
      const KvLayout layout{1, 32, 32, GetParam(), bits, 32};
      for (float x : {0.0f, -0.0f, 1.0f, -1.5f, 1e-6f, -3e-8f, 6e4f}) {
        check(*kernels, layout, 5, Values(32, x), Values(32, -x));
      }
      Values one_sided(32, 0.0f);
      one_sided[7] = 2.0f;
      check(*kernels, layout, 6, one_sided, one_sided);
    }
  }
}

TEST_P(KvRows, ANonFiniteValueMakesItsGroupNan) {
  for (const Kernels* kernels : available_kernels()) {
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      for (int bits : {4, 8}) {
        const KvLayout layout{1, 64, 32, GetParam(), bits, 32};
        Values k(64, 0.25f), v(32, 0.5f), loaded_k(64), loaded_v(32);
        k[40] = bad;
        std::vector<std::byte> layer(static_cast<size_t>(layout.layer_bytes()));
        kernels->kv_store(layout, layer.data(), 9, k.data(), v.data());
        kernels->kv_load(layout, layer.data(), 9, loaded_k.data(), loaded_v.data());
        for (size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(loaded_k[i]), i >= 32) << kernels->isa << " " << i;
        EXPECT_EQ(difference(loaded_v, v), "");
      }
    }
  }
}

TEST_P(KvRows, OfElementsComeBackRounded) {
  TestRandom random(32);
  const KvLayout layout{3, 24, 16, GetParam()};
  const Values k = random.vector(72, 3), v = random.vector(48, 1e-3f);
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> layer(static_cast<size_t>(layout.layer_bytes()));
    kernels->kv_store(layout, layer.data(), 11, k.data(), v.data());
    Values loaded_k(72), loaded_v(48);
    kernels->kv_load(layout, layer.data(), 11, loaded_k.data(), loaded_v.data());
    for (size_t i = 0; i < 72; ++i) ASSERT_EQ(loaded_k[i], rounded(GetParam(), k[i])) << kernels->isa;
    for (size_t i = 0; i < 48; ++i) ASSERT_EQ(loaded_v[i], rounded(GetParam(), v[i])) << kernels->isa;
  }
}

}  // namespace
}  // namespace mlxlm
