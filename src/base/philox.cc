#include "base/philox.h"

#include <random>

#include "base/scalar_math.h"

namespace mlxlm {
namespace {

constexpr uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

// Four neighbouring indices share one evaluation; the purpose sits in the top bits of the index word's partner.
uint32_t draw_bits(uint64_t seed, int64_t position, DrawPurpose purpose, uint32_t index) {
  const auto pos = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> counter = {index / 4, static_cast<uint32_t>(pos), static_cast<uint32_t>(pos >> 32),
                                           static_cast<uint32_t>(purpose)};
  return philox4x32(counter, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[index % 4];
}

double to_unit(uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1p-32; }

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMul0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kMul1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

double gumbel_noise(uint64_t seed, int64_t position, int32_t token) {
  const double u = to_unit(draw_bits(seed, position, DrawPurpose::gumbel, static_cast<uint32_t>(token)));
  return -fixed_log(-fixed_log(u));
}

double uniform_draw(uint64_t seed, int64_t position, DrawPurpose purpose, uint32_t index) {
  return to_unit(draw_bits(seed, position, purpose, index));
}

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace mlxlm
