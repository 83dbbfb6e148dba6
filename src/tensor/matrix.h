// Weight matrices as they lie in the checkpoint: dense or affine-quantised, in place, at any byte alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace mlxlm {

/// A weight matrix [rows, cols] (out features, in features), row-major, used in place.
///
/// Dense (bits == 0): `data` holds f32, f16 or bf16 values.
/// Affine (bits in {2,3,4,5,6,8}): each row of `data` is one little-endian bitstream of cols·bits/8 bytes, code i in
/// bits [i·bits, (i+1)·bits), LSB first; `scales` and `biases` are [rows, cols/group_size] of `dtype`; weight = code ·
/// scale + bias. cols is a multiple of group_size, which is 32, 64 or 128.
struct Matrix {
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::f32;  ///< of the values (dense) or of scales and biases (affine)
  int bits = 0;
  int group_size = 0;

  bool quantized() const { return bits != 0; }
  int64_t groups() const { return quantized() ? cols / group_size : 0; }
  /// Bytes of one row of `data`.
  int64_t row_bytes() const { return quantized() ? cols * bits / 8 : cols * static_cast<int64_t>(dtype_size(dtype)); }
  /// Bytes of one row of `scales`, and of `biases`.
  int64_t scale_row_bytes() const { return groups() * static_cast<int64_t>(dtype_size(dtype)); }
  /// Bytes of the whole matrix, scales and biases included.
  int64_t bytes() const { return rows * (row_bytes() + 2 * scale_row_bytes()); }
};

}  // namespace mlxlm
