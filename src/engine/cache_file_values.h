// Floats of a cache file and of a model, whose types may differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace mlxlm::engine {

/// Reads n values of dtype f32, f16 or bf16 (at any alignment) into `out`; every value is exact.
void widen(DType dtype, const std::byte* in, int64_t n, float* out);

/// Writes n values as dtype f32, f16 or bf16, rounded to nearest even. Returns the index of the first value that
/// changed by it, or n.
int64_t narrow(DType dtype, const float* in, int64_t n, std::byte* out);

}  // namespace mlxlm::engine
