#include "base/philox.h"

#include <random>

#include "base/scalar_math.h"

namespace mlxlm {
namespace {

// Four neighbouring indices (a group) share one evaluation; the purpose is the counter's last word.
std::array<uint32_t, 4> draw_bits(uint64_t seed, int64_t position, DrawPurpose purpose, uint32_t group) {
  const auto pos = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> counter = {group, static_cast<uint32_t>(pos), static_cast<uint32_t>(pos >> 32),
                                           static_cast<uint32_t>(purpose)};
  return philox4x32(counter, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

double to_unit(uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1p-32; }

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxMul0) * c[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxMul1) * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += kPhiloxWeyl0;
    k[1] += kPhiloxWeyl1;
  }
  return c;
}

double gumbel_noise(uint64_t seed, int64_t position, int32_t token) {
  const auto index = static_cast<uint32_t>(token);
  return gumbel_of_bits(gumbel_bits(seed, position, index / 4)[index % 4]);
}

std::array<uint32_t, 4> gumbel_bits(uint64_t seed, int64_t position, uint32_t group) {
  return draw_bits(seed, position, DrawPurpose::gumbel, group);
}

double gumbel_of_bits(uint32_t bits) { return -fixed_log(-fixed_log(to_unit(bits))); }

double uniform_draw(uint64_t seed, int64_t position, DrawPurpose purpose, uint32_t index) {
  return to_unit(draw_bits(seed, position, purpose, index / 4)[index % 4]);
}

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace mlxlm
