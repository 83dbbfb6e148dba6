// Affine quantisation with MLX's arithmetic, so that codes, scales and biases are its own bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "mlxlm/convert.h"

namespace mlxlm::conversion {

/// Scale and bias of a group, before they are rounded to the weights' type.
struct GroupAffine {
  float scale;
  float bias;
};

/// The values must be finite. The scale is infinite when the group's range overflows float32.
GroupAffine group_affine(std::span<const float> group, int bits);

/// Quantises a row of whole groups. `codes`: [cols · bits / 8] bytes, one little-endian bitstream; `scales`, `biases`:
/// [cols / group_size], before rounding.
void quantize_row(std::span<const float> row, QuantFormat format, std::byte* codes, float* scales, float* biases);

/// Dequantises a row: scales and biases [cols / group_size] hold values of `dtype`, and the product and the sum are
/// each rounded to it.
void dequantize_row(const std::byte* codes, const float* scales, const float* biases, QuantFormat format, DType dtype,
                    std::span<float> row);

}  // namespace mlxlm::conversion
