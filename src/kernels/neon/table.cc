// The kernels for NEON: the shared algorithms over this set's vectors, and its own integer products.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/philox.h"
#include "kernels/kernels.h"
#include "kernels/neon/affine.h"
#include "kernels/neon/simd.h"
#include "kernels/neon_dot/affine.h"
#include "kernels/sets.h"

namespace mlxlm::neon {
namespace {

// Each uses what stands above it.
// clang-format off
#include "kernels/generic/elements.inl"
#include "kernels/generic/math.inl"
#include "kernels/generic/rows.inl"
#include "kernels/generic/logits.inl"
#include "kernels/generic/noise.inl"
#include "kernels/generic/float_matmul.inl"
#include "kernels/generic/kv_rows.inl"
#include "kernels/generic/attention.inl"
// clang-format on

constexpr Kernels make_kernels(const char* isa, decltype(Kernels::affine_matmul) affine_product) {
  Kernels kernels = {
      .isa = isa,
#include "kernels/generic/table.inl"
  };
  kernels.affine_matmul = affine_product;
  return kernels;
}

}  // namespace

extern const Kernels kKernels = make_kernels("neon", affine_matmul);

}  // namespace mlxlm::neon

// Dot product instructions serve the integer products alone; all else is NEON's.
extern const mlxlm::Kernels mlxlm::neon_dot::kKernels =
    mlxlm::neon::make_kernels("neon_dot", mlxlm::neon_dot::affine_matmul);
