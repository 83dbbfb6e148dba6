// The kernels for plain C++: the shared algorithms over this set's vectors, and its own integer products.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/philox.h"
#include "kernels/kernels.h"
#include "kernels/scalar/affine.h"
#include "kernels/scalar/simd.h"
#include "kernels/sets.h"

namespace mlxlm::scalar {
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

}  // namespace

extern const Kernels kKernels = {
    .isa = "scalar",
#include "kernels/generic/table.inl"
};

}  // namespace mlxlm::scalar
