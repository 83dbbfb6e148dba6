// The `fast` affine products of this instruction set: the members of the same names of Kernels (kernels/kernels.h).
#pragma once

#include "kernels/kernels.h"

namespace mlxlm::scalar {

int pack_class(int bits);
size_t packed_bytes(int pack_class, int64_t tokens, int64_t k);
void pack_activations(int pack_class, const float* x, int64_t tokens, int64_t k, int64_t lo, int64_t hi, void* packed);
void affine_matmul(const Matrix& w, const void* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                   int64_t out_stride, void* scratch);

}  // namespace mlxlm::scalar
