// The `fast` affine products of this instruction set: the member of the same name of Kernels (kernels/kernels.h).
#pragma once

#include "kernels/kernels.h"

namespace mlxlm::neon_dot {

void affine_matmul(const Matrix& w, const void* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                   int64_t out_stride, void* scratch);

}  // namespace mlxlm::neon_dot
