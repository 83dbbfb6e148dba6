// The `fast` affine products of every instruction set against a plain reading of the contract in kernels.h, bit for
// bit.
#include "kernels/scalar/affine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#if defined(__x86_64__)
#include "kernels/avx2/affine.h"
#elif defined(__aarch64__)
#include "kernels/neon/affine.h"
#include "kernels/neon_dot/affine.h"
#endif

namespace mlxlm {
namespace {

struct Set {
  const char* name;
  decltype(Kernels::pack_class) pack_class;
  decltype(Kernels::packed_bytes) packed_bytes;
  decltype(Kernels::pack_activations) pack_activations;
  decltype(Kernels::affine_matmul) affine_matmul;
};

std::vector<Set> runnable_sets() {
  std::vector<Set> sets = {
      {"scalar", scalar::pack_class, scalar::packed_bytes, scalar::pack_activations, scalar::affine_matmul}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets.push_back({"avx2", avx2::pack_class, avx2::packed_bytes, avx2::pack_activations, avx2::affine_matmul});
  }
#elif defined(__aarch64__)
  sets.push_back({"neon", neon::pack_class, neon::packed_bytes, neon::pack_activations, neon::affine_matmul});
  if (available_kernels().front()->isa == std::string("neon_dot")) {
    sets.push_back({"neon_dot", neon::pack_class, neon::packed_bytes, neon::pack_activations, neon_dot::affine_matmul});
  }
#endif
  return sets;
}

// Bytes between two pages that fault. Where they lie: against the end page, `shift` bytes from it, or against the
// first.
class GuardedBytes {
 public:
  GuardedBytes(const std::vector<uint8_t>& bytes, int shift) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (bytes.size() + page) / page * page;
    size_ = room + 2 * page;
    map_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(map_, MAP_FAILED);
    mprotect(map_, page, PROT_NONE);
    mprotect(map_ + page + room, page, PROT_NONE);
    const bool at_start = shift < 0;
    const size_t space = room - bytes.size();
    const size_t from_end = at_start ? space : std::min(static_cast<size_t>(shift), space);
    data_ = map_ + page + space - from_end;
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  GuardedBytes(GuardedBytes&& other) noexcept
      : map_(std::exchange(other.map_, nullptr)), data_(other.data_), size_(other.size_) {}
  ~GuardedBytes() {
    if (map_ != nullptr) munmap(map_, size_);
  }
  const std::byte* data() const { return data_; }

 private:
  std::byte* map_;
  std::byte* data_;
  size_t size_;
};

// Where GuardedBytes puts a tensor.
constexpr int kPlacements[] = {0, -1, 1, 3, 13};

struct Weights {
  int bits = 4;
  int group_size = 32;
  DType dtype = DType::f16;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<uint8_t> data{}, scales{}, biases{};  // as in a checkpoint
  std::vector<int> codes{};                         // [rows, cols]
  std::vector<float> scale{}, bias{};               // [rows, cols / group_size]
};

uint16_t random_half(std::mt19937& rng) {  // finite, of either sign, denormals included
  return static_cast<uint16_t>((rng() & 0x8000u) | rng() % 0x5800u);
}

float half_value(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(h & 0x8000 ? -magnitude : magnitude);
}

float push_scale(DType dtype, std::mt19937& rng, std::vector<uint8_t>& bytes) {
  float value = 0;
  uint32_t word = 0;
  if (dtype == DType::f16) {
    word = random_half(rng);
    value = half_value(static_cast<uint16_t>(word));
  } else {
    value = std::uniform_real_distribution<float>(-1, 1)(rng) * (rng() % 16 == 0 ? 1e-40f : 0.1f);
    std::memcpy(&word, &value, sizeof word);
    if (dtype == DType::bf16) {
      const uint32_t kept = word & 0xffff0000u;
      std::memcpy(&value, &kept, sizeof value);
      word >>= 16;
    }
  }
  for (size_t i = 0; i < dtype_size(dtype); ++i) bytes.push_back(static_cast<uint8_t>(word >> 8 * i));
  return value;
}

Weights random_weights(int bits, int group_size, DType dtype, int64_t rows, int64_t cols, std::mt19937& rng) {
  Weights w{.bits = bits, .group_size = group_size, .dtype = dtype, .rows = rows, .cols = cols};
  w.data.resize(static_cast<size_t>(rows * cols * bits / 8));
  const int top = (1 << bits) - 1;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int code = i % cols < 64 ? top : static_cast<int>(rng() & static_cast<unsigned>(top));
    w.codes.push_back(code);
    for (int b = 0; b < bits; ++b) {
      const int64_t bit = i * bits + b;
      w.data[static_cast<size_t>(bit / 8)] |= static_cast<uint8_t>((code >> b & 1) << bit % 8);
    }
  }
  for (int64_t i = 0; i < rows * cols / group_size; ++i) {
    w.scale.push_back(push_scale(dtype, rng, w.scales));
    w.bias.push_back(push_scale(dtype, rng, w.biases));
  }
  return w;
}

std::vector<float> random_activations(int64_t tokens, int64_t k, std::mt19937& rng) {
  std::vector<float> x(static_cast<size_t>(tokens * k));
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(rng);
  for (int64_t t = 0; t < tokens; ++t) {
    float* row = x.data() + t * k;
    if (t % 7 == 0) std::fill(row, row + 32, t % 2 == 0 ? 3.0f : -3.0f);  // ±127 against the largest codes
    if (t % 7 == 1) std::fill(row + k - 32, row + k, 0.0f);
    if (t % 7 == 2)
      for (int i = 0; i < 32; ++i) row[i] *= 1e-38f;
    if (t % 7 == 3)
      for (int i = 0; i < 32; ++i) row[i] *= 1e-42f;
    if (t % 7 == 4)
      for (int i = 0; i < 32; ++i) row[i] *= 3e37f;
  }
  return x;
}

// The contract, read plainly: out [tokens, rows].
std::vector<float> reference(const Weights& w, const std::vector<float>& x, int64_t tokens) {
  const int64_t k = w.cols, groups = k / 32;
  std::vector<float> out(static_cast<size_t>(tokens * w.rows));
  std::vector<int> codes(static_cast<size_t>(k));
  std::vector<float> s(static_cast<size_t>(groups)), xs(s);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      const float* group = x.data() + t * k + g * 32;
      float amax = 0;
      for (int i = 0; i < 32; ++i)
        amax = std::isnan(group[i]) ? group[i] : std::isnan(amax) ? amax : std::max(amax, std::fabs(group[i]));
      const float inverse = 127.0f / amax;
      int sum = 0;
      for (int i = 0; i < 32; ++i) {
        const bool usable = std::isfinite(inverse) && inverse > 0;
        codes[static_cast<size_t>(g * 32 + i)] = usable ? static_cast<int>(std::rint(group[i] * inverse)) : 0;
        sum += codes[static_cast<size_t>(g * 32 + i)];
      }
      s[static_cast<size_t>(g)] = amax / 127.0f;
      xs[static_cast<size_t>(g)] = amax / 127.0f * static_cast<float>(sum);
    }
    for (int64_t n = 0; n < w.rows; ++n) {
      float acc = 0;
      const int* q = w.codes.data() + n * k;
      for (int64_t g = 0; g < groups; ++g) {
        int dot = 0;
        for (int64_t i = g * 32; i < g * 32 + 32; ++i) dot += codes[static_cast<size_t>(i)] * q[i];
        const auto at = static_cast<size_t>((n * k + g * 32) / w.group_size), gi = static_cast<size_t>(g);
        acc = std::fma(static_cast<float>(dot), w.scale[at] * s[gi], acc);
        acc = std::fma(w.bias[at], xs[gi], acc);
      }
      out[static_cast<size_t>(t * w.rows + n)] = acc;
    }
  }
  return out;
}

bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

// Runs `set` on the first `tokens` tokens in row ranges cut at `cuts` and compares with the reference.
testing::AssertionResult matches(const Set& set, const Weights& w, const std::vector<float>& x, int64_t tokens,
                                 const std::vector<int64_t>& cuts, int placement, const std::vector<float>& expected) {
  const GuardedBytes data(w.data, placement), scales(w.scales, placement), biases(w.biases, placement);
  const Matrix matrix{.data = data.data(),
                      .scales = scales.data(),
                      .biases = biases.data(),
                      .rows = w.rows,
                      .cols = w.cols,
                      .dtype = w.dtype,
                      .bits = w.bits,
                      .group_size = w.group_size};
  const std::vector<uint8_t> x_bytes(reinterpret_cast<const uint8_t*>(x.data()),
                                     reinterpret_cast<const uint8_t*>(x.data() + tokens * w.cols));
  const GuardedBytes guarded_x(x_bytes, 0);
  const int pack = set.pack_class(w.bits);
  const size_t packed_size = set.packed_bytes(pack, tokens, w.cols);
  const GuardedBytes packed(std::vector<uint8_t>((packed_size + 63) / 64 * 64, 0xee), 0);
  auto* packed_data = const_cast<std::byte*>(packed.data());
  for (int64_t lo = 0; lo < tokens; lo += 2 * kTokenTile) {
    set.pack_activations(pack, reinterpret_cast<const float*>(guarded_x.data()), tokens, w.cols, lo,
                         std::min(tokens, lo + 2 * kTokenTile), packed_data);
  }
  static const GuardedBytes scratch(std::vector<uint8_t>(kScratchBytes, 0xff), 0);
  const int64_t stride = w.rows + 3;
  std::vector<float> out(static_cast<size_t>(tokens * stride), -77.0f);
  int64_t lo = 0;
  for (const int64_t cut : cuts) {
    const int64_t hi = std::min(cut, w.rows);
    if (lo < hi) {
      set.affine_matmul(matrix, packed_data, tokens, lo, hi, out.data(), stride,
                        const_cast<std::byte*>(scratch.data()));
      lo = hi;
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < stride; ++n) {
      const float want = n < w.rows ? expected[static_cast<size_t>(t * w.rows + n)] : -77.0f;
      const float got = out[static_cast<size_t>(t * stride + n)];
      if (!same(got, want)) {
        return testing::AssertionFailure() << set.name << ": token " << t << " of " << tokens << ", row " << n
                                           << ": got " << got << ", want " << want;
      }
    }
  }
  return testing::AssertionSuccess();
}

constexpr int64_t kTokens[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 25, 33, 70};

class AffineTest : public testing::TestWithParam<std::tuple<int, int, DType>> {};

TEST_P(AffineTest, MatchesTheContractBitForBit) {
  const auto [bits, group_size, dtype] = GetParam();
  std::mt19937 rng(static_cast<unsigned>(bits * 1000 + group_size));
  size_t placement = 0;
  for (const int64_t cols : {32, 96, 128, 320, 576, 640, 1056, 1152, 2176}) {
    if (cols % group_size != 0) continue;
    const bool small = cols < 1000;
    for (const int64_t rows : small ? std::vector<int64_t>{1, 7, 9, 100} : std::vector<int64_t>{8, 63}) {
      const Weights w = random_weights(bits, group_size, dtype, rows, cols, rng);
      const int64_t most = small && rows < 100 ? 70 : 17;
      const std::vector<float> x = random_activations(most, cols, rng), expected = reference(w, x, most);
      for (const Set& set : runnable_sets()) {
        for (const int64_t tokens : kTokens) {
          if (tokens > most) continue;
          const int place = kPlacements[placement++ % std::size(kPlacements)];
          ASSERT_TRUE(matches(set, w, x, tokens, {rows}, place, expected))
              << "[" << rows << ", " << cols << "], placement " << place;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AffineTest,
                         testing::Combine(testing::Values(2, 3, 4, 5, 6, 8), testing::Values(32, 64, 128),
                                          testing::Values(DType::f16, DType::bf16, DType::f32)),
                         [](const auto& param) {
                           return std::to_string(std::get<0>(param.param)) + "bits_g" +
                                  std::to_string(std::get<1>(param.param)) + "_" + dtype_name(std::get<2>(param.param));
                         });

TEST(Affine, RowSplitsChangeNothing) {
  std::mt19937 rng(5);
  for (const int bits : {3, 4, 5, 8}) {
    const Weights w = random_weights(bits, 32, DType::bf16, 136, 352, rng);
    const std::vector<float> x = random_activations(33, w.cols, rng), expected = reference(w, x, 33);
    for (const Set& set : runnable_sets()) {
      for (const int64_t tokens : {1, 3, 8, 33}) {
        for (const int placement : kPlacements) {
          EXPECT_TRUE(matches(set, w, x, tokens, {8, 16, 64, 136}, placement, expected)) << bits;
          EXPECT_TRUE(matches(set, w, x, tokens, {72, 136}, placement, expected)) << bits;
        }
      }
    }
  }
}

TEST(Affine, AnyByteAlignment) {
  std::mt19937 rng(6);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const Weights w = random_weights(bits, 64, DType::f16, 13, 576, rng);
    const std::vector<float> x = random_activations(9, w.cols, rng), expected = reference(w, x, 9);
    for (const Set& set : runnable_sets()) {
      for (int offset = 0; offset < 64; ++offset) {
        for (const int64_t tokens : {1, 9}) EXPECT_TRUE(matches(set, w, x, tokens, {13}, offset, expected)) << offset;
      }
    }
  }
}

TEST(Affine, ManyTokensAreWalkedInBlocks) {
  std::mt19937 rng(7);
  const Weights w = random_weights(4, 64, DType::f16, 12, 128, rng);
  const std::vector<float> x = random_activations(5003, w.cols, rng), expected = reference(w, x, 5003);
  for (const Set& set : runnable_sets()) {
    for (const int64_t tokens : {2049, 5003}) EXPECT_TRUE(matches(set, w, x, tokens, {12}, 0, expected));
  }
}

TEST(Affine, NanAndInfinityReachEveryOutputOfTheirTokenAlone) {
  std::mt19937 rng(8);
  for (const int bits : {2, 4, 8}) {
    const Weights w = random_weights(bits, 32, DType::f32, 20, 160, rng);
    std::vector<float> x = random_activations(20, w.cols, rng);
    x[static_cast<size_t>(3 * w.cols + 40)] = std::numeric_limits<float>::quiet_NaN();
    x[static_cast<size_t>(5 * w.cols + 70)] = -std::numeric_limits<float>::quiet_NaN();
    x[static_cast<size_t>(6 * w.cols + 159)] = std::numeric_limits<float>::infinity();
    x[static_cast<size_t>(1 * w.cols + 0)] = -std::numeric_limits<float>::infinity();
    const std::vector<float> expected = reference(w, x, 20);
    for (const int64_t t : {1, 3, 5, 6}) ASSERT_TRUE(std::isnan(expected[static_cast<size_t>(t * w.rows)]));
    ASSERT_FALSE(std::isnan(expected[0]));
    for (const Set& set : runnable_sets()) {
      for (const int64_t tokens : {2, 4, 7, 20}) EXPECT_TRUE(matches(set, w, x, tokens, {20}, 0, expected)) << bits;
    }
  }
}

TEST(Affine, SaysWhichSetsRan) {
  std::string names;
  for (const Set& set : runnable_sets()) names += std::string(" ") + set.name;
  std::printf("affine sets tested:%s\n", names.c_str());
#if defined(__aarch64__)
  EXPECT_EQ(names.substr(0, 12), " scalar neon");
#else
  EXPECT_EQ(names.substr(0, 7), " scalar");
#endif
}

}  // namespace
}  // namespace mlxlm
