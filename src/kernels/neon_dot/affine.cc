// The affine products with the dot product instructions of Armv8.2; packs are NEON's.
#include "kernels/neon_dot/affine.h"

#include <arm_neon.h>

#include "kernels/generic/affine_blocked.h"
#include "kernels/generic/macros.h"

namespace mlxlm::neon_dot {
namespace {

/// Sums of 8 products in each lane; they are exact whatever the codes.
template <bool kSignedBytes>
MLXLM_INLINE int32x4_t dot_group(int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1) {
  return vdotq_s32(vdotq_s32(vdupq_n_s32(0), w0, x0), w1, x1);
}

#include "kernels/neon/affine.inl"

}  // namespace

void affine_matmul(const Matrix& w, const void* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                   int64_t out_stride, void* scratch) {
  blocked_matmul(w, packed, tokens, lo, hi, out, out_stride, scratch);
}

}  // namespace mlxlm::neon_dot
