// Products in float32 and dequantised rows, against a plain reference of the contract's order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace mlxlm {
namespace {

/// A matrix of random data, with nothing allocated before or behind it; `shift` bytes off alignment.
class RandomMatrix {
 public:
  RandomMatrix(TestRandom& random, int64_t rows, int64_t cols, DType dtype, int bits, int group_size, size_t shift) {
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.dtype = dtype;
    matrix.bits = bits;
    matrix.group_size = group_size;
    if (bits == 0) {
      matrix.data = floats(random, data_, rows * cols, shift);
      return;
    }
    data_.resize(static_cast<size_t>(rows * matrix.row_bytes()) + shift);
    for (std::byte& byte : data_) byte = static_cast<std::byte>(random.bits() >> 20);
    matrix.data = data_.data() + shift;
    matrix.scales = floats(random, scales_, rows * matrix.groups(), shift);
    matrix.biases = floats(random, biases_, rows * matrix.groups(), shift);
  }

  /// Weight (row, k) in float32, straight from the format's definition.
  float weight(int64_t row, int64_t k) const {
    const auto at = [&](const std::byte* base, int64_t index) {
      return static_cast<float>(
          element_value(matrix.dtype, base + index * static_cast<int64_t>(dtype_size(matrix.dtype))));
    };
    if (matrix.bits == 0) return at(matrix.data, row * matrix.cols + k);
    const std::byte* bytes = matrix.data + row * matrix.row_bytes();
    int code = 0;
    for (int b = 0; b < matrix.bits; ++b) {
      const int64_t bit = k * matrix.bits + b;
      code |= (static_cast<int>(bytes[bit / 8]) >> (bit % 8) & 1) << b;
    }
    const int64_t group = row * matrix.groups() + k / matrix.group_size;
    return std::fmaf(static_cast<float>(code), at(matrix.scales, group), at(matrix.biases, group));
  }

  Matrix matrix;

 private:
  const std::byte* floats(TestRandom& random, std::vector<std::byte>& store, int64_t n, size_t shift) {
    const size_t size = dtype_size(matrix.dtype);
    store.resize(static_cast<size_t>(n) * size + shift);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const float value = random.uniform();
      const uint16_t word = matrix.dtype == DType::f32 ? uint16_t{0} : nearest_element(matrix.dtype, value);
      std::memcpy(store.data() + shift + i * size, size == 4 ? static_cast<const void*>(&value) : &word, size);
    }
    return store.data() + shift;
  }

  std::vector<std::byte> data_, scales_, biases_;
};

float reference_product(const std::vector<float>& weights, const float* x) {
  float lanes[16] = {};
  for (size_t k = 0; k < (weights.size() + 15) / 16 * 16; ++k) {
    const bool inside = k < weights.size();
    lanes[k % 16] = std::fmaf(inside ? weights[k] : 0.0f, inside ? x[k] : 0.0f, lanes[k % 16]);
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// Every set, rows [lo, hi) and 1 … tokens tokens against the reference; what lies outside must stay untouched.
void check_products(const RandomMatrix& w, TestRandom& random, const std::vector<int64_t>& token_counts, int64_t lo,
                    int64_t hi) {
  const int64_t most = token_counts.back(), stride = w.matrix.rows + 3;
  const std::vector<float> x = random.vector(most * w.matrix.cols);
  const float kUntouched = -12345.0f;
  std::vector<float> expected(static_cast<size_t>(most * stride), kUntouched);
  std::vector<float> weights(static_cast<size_t>(w.matrix.cols));
  for (int64_t n = lo; n < hi; ++n) {
    for (int64_t k = 0; k < w.matrix.cols; ++k) weights[static_cast<size_t>(k)] = w.weight(n, k);
    for (int64_t t = 0; t < most; ++t) {
      expected[static_cast<size_t>(t * stride + n)] = reference_product(weights, x.data() + t * w.matrix.cols);
    }
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> row(weights.size());
      kernels->dequantize_row(w.matrix, n, row.data());
      ASSERT_EQ(difference(row, weights), "") << kernels->isa;
    }
  }
  std::vector<std::byte> scratch(kScratchBytes);
  for (const Kernels* kernels : available_kernels()) {
    for (int64_t tokens : token_counts) {
      const std::vector<float> input(x.begin(), x.begin() + tokens * w.matrix.cols);
      std::vector<float> out(static_cast<size_t>(tokens * stride), kUntouched);
      kernels->float_matmul(w.matrix, input.data(), tokens, lo, hi, out.data(), stride, scratch.data());
      const std::vector<float> wanted(expected.begin(), expected.begin() + tokens * stride);
      ASSERT_EQ(difference(out, wanted), "") << kernels->isa << " tokens " << tokens << " cols " << w.matrix.cols
                                             << " bits " << w.matrix.bits << " " << dtype_name(w.matrix.dtype);
    }
  }
}

class FloatMatmul : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, FloatMatmul, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& param) { return dtype_name(param.param); });

TEST_P(FloatMatmul, DenseOfAnyWidthAndAlignment) {
  TestRandom random(11);
  for (int64_t cols : {1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 47, 100, 576, 601}) {
    const RandomMatrix w(random, 19, cols, GetParam(), 0, 0, static_cast<size_t>(random.integer(0, 7)));
    check_products(w, random, {1, 2, 3, 5, 8, 17}, 0, 19);
    check_products(w, random, {1, 4}, 8, 16);
    check_products(w, random, {1, 9}, 16, 19);
  }
}

TEST_P(FloatMatmul, AffineOfEveryWidthAndGroup) {
  TestRandom random(12);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group_size : {32, 64, 128}) {
      for (int64_t groups : {1, 3}) {
        const size_t shift = static_cast<size_t>(random.integer(0, 7));
        const RandomMatrix w(random, 11, groups * group_size, GetParam(), bits, group_size, shift);
        check_products(w, random, {1, 2, 3, 6, 19}, 0, 11);
      }
    }
  }
}

TEST(FloatMatmulLong, RowsLongerThanTheScratchHoldsManyOf) {
  TestRandom random(13);
  const RandomMatrix dense(random, 9, 28'675, DType::bf16, 0, 0, 1);
  check_products(dense, random, {1, 2, 5, 16}, 0, 9);
  const RandomMatrix huge(random, 2, 300'003, DType::f16, 0, 0, 3);  // one row in float32 is more than the scratch
  check_products(huge, random, {1, 3}, 0, 2);
  const RandomMatrix affine(random, 10, 16'384, DType::f16, 4, 64, 5);
  check_products(affine, random, {1, 12}, 0, 10);
}

}  // namespace
}  // namespace mlxlm
