#include "nn/rope.h"

#include "base/scalar_math.h"

namespace mlxlm::nn {

std::vector<double> rope_frequencies(double base, int64_t dims) {
  std::vector<double> frequencies(static_cast<size_t>(dims / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = fixed_pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
  }
  return frequencies;
}

namespace {

// NTK-aware growth: base · (factor · length / max − (factor − 1))^(dims / (dims − 2)), length = position + 1.
std::vector<float> dynamic_frequencies(const RopeSpec& rope, int64_t position) {
  const auto dims = static_cast<double>(2 * rope.inv_freq.size());
  const double ratio = static_cast<double>(position + 1) / static_cast<double>(rope.dynamic.max_position);
  const double growth = rope.dynamic.factor * ratio - (rope.dynamic.factor - 1);
  const double base = rope.dynamic.base * fixed_pow(growth, dims / (dims - 2));
  const std::vector<double> exact = rope_frequencies(base, static_cast<int64_t>(dims));
  return {exact.begin(), exact.end()};
}

void angles_of(std::span<const float> inv_freq, float magnitude, int64_t position, float* cos, float* sin) {
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const float angle = static_cast<float>(position) * inv_freq[i];
    const SinCos sc = fixed_sincos(angle);
    cos[i] = static_cast<float>(sc.cos) * magnitude;
    sin[i] = static_cast<float>(sc.sin) * magnitude;
  }
}

}  // namespace

void rope_angles(const RopeSpec& rope, std::span<const int64_t> positions, float* cos, float* sin) {
  const size_t half = rope.inv_freq.size();
  for (size_t t = 0; t < positions.size(); ++t) {
    const int64_t position = positions[t];
    const bool grown = rope.dynamic.base > 0 && position >= rope.dynamic.max_position;
    if (grown) {
      angles_of(dynamic_frequencies(rope, position), rope.magnitude, position, cos + t * half, sin + t * half);
    } else {
      angles_of(rope.inv_freq, rope.magnitude, position, cos + t * half, sin + t * half);
    }
  }
}

}  // namespace mlxlm::nn
