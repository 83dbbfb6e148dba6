#include "kernels/neon/affine.h"

#include <arm_neon.h>

#include "kernels/generic/affine_blocked.h"
#include "kernels/generic/macros.h"

namespace mlxlm::neon {
namespace {

/// Partial sums of 32 products. int16 holds 4 products of 6-bit codes (4 · 63 · 127), or 2 of signed bytes
/// (2 · 128 · 127).
template <bool kSignedBytes>
MLXLM_INLINE int32x4_t dot_group(int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1) {
  int16x8_t a = vmlal_high_s8(vmull_s8(vget_low_s8(w0), vget_low_s8(x0)), w0, x0);
  if (kSignedBytes) {
    const int16x8_t b = vmlal_high_s8(vmull_s8(vget_low_s8(w1), vget_low_s8(x1)), w1, x1);
    return vpadalq_s16(vpaddlq_s16(a), b);
  }
  a = vmlal_high_s8(vmlal_s8(a, vget_low_s8(w1), vget_low_s8(x1)), w1, x1);
  return vpaddlq_s16(a);
}

#include "kernels/neon/affine.inl"

}  // namespace

int pack_class(int /*bits*/) { return 0; }

size_t packed_bytes(int /*pack_class*/, int64_t tokens, int64_t k) { return blocked_packed_bytes(tokens, k); }

void pack_activations(int /*pack_class*/, const float* x, int64_t /*tokens*/, int64_t k, int64_t lo, int64_t hi,
                      void* packed) {
  blocked_pack(x, k, lo, hi, packed);
}

void affine_matmul(const Matrix& w, const void* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                   int64_t out_stride, void* scratch) {
  blocked_matmul(w, packed, tokens, lo, hi, out, out_stride, scratch);
}

}  // namespace mlxlm::neon
