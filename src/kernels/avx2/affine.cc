#include "kernels/avx2/affine.h"

#include "kernels/generic/affine_blocked.h"

namespace mlxlm::avx2 {
namespace {

void quantize_group(const float* x, PackedGroup& out) {
  uint32_t amax = 0;
  for (int i = 0; i < kGroup; ++i) {
    const uint32_t magnitude = float_bits(x[i]) & 0x7fffffffu;
    amax = magnitude > amax ? magnitude : amax;
  }
  const Quantizer q = make_quantizer(amax);
  constexpr float kRound = 0x1.8p23f;  // adding and taking it off rounds to nearest even
  int32_t sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const int32_t code = q.inverse == 0 ? 0 : static_cast<int32_t>(x[i] * q.inverse + kRound - kRound);
    out.codes[i] = static_cast<int8_t>(code);
    sum += code;
  }
  out.scale = q.scale;
  out.sum = q.scale * static_cast<float>(sum);
  out.code_sum = sum;
}

void unpack_row(int bits, const uint8_t* src, int groups, uint8_t* codes) {
  for (int g = 0; g < groups; ++g) unpack_group_plain(bits, src + g * 4 * bits, codes + g * kPanelRows * kGroup);
}

void multiply_panel(const Panel& panel, const PackedGroup* x, int64_t token_stride, int64_t tokens, float* acc) {
  for (int64_t t = 0; t < tokens; ++t, x += token_stride, acc += kPanelRows) {
    for (int g = 0; g < panel.groups; ++g) {
      for (int r = 0; r < kPanelRows; ++r) {
        int32_t dot = 0;
        for (int i = 0; i < kGroup; ++i) dot += x[g].codes[i] * panel.codes[g][r][i];
        const float sum = __builtin_fmaf(static_cast<float>(dot), panel.scales[g][r] * x[g].scale, acc[r]);
        acc[r] = __builtin_fmaf(panel.biases[g][r], x[g].sum, sum);
      }
    }
  }
}

#include "kernels/generic/affine_blocked.inl"

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

}  // namespace mlxlm::avx2
