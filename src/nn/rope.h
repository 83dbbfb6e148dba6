// Rotary position embedding: the angles of a run of positions.
#pragma once

#include <cstdint>
#include <span>

#include "nn/spec.h"

namespace mlxlm::nn {

/// cos and sin [positions, half] of angle = position · inv_freq in float32, times the spec's magnitude. With dynamic
/// scaling a position past max_position uses the base grown for it, never for a later one, so keys stay as they were.
void rope_angles(const RopeSpec& rope, std::span<const int64_t> positions, float* cos, float* sin);

/// base^(−2i/dims) for i in [0, dims/2): the frequencies of plain rope.
std::vector<double> rope_frequencies(double base, int64_t dims);

}  // namespace mlxlm::nn
