// The affine products over NEON's vectors, for the sets that differ in how they multiply bytes.
//
// The including file first defines, in the namespace this is included into:
//   template <bool kSignedBytes>
//   int32x4_t dot_group(int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1);  // partial sums of 32 products
// where codes of up to 6 bits lie in [0, 63], and signed bytes in [-128, 127]. It gets blocked_packed_bytes, blocked_pack
// and blocked_matmul.

// A group's even codes come first, then its odd ones: the order in which a mask and a shift take 4-bit codes out of
// bytes. 8-bit codes are kept as q − 128, which is signed; the difference, 128 · Σ code, is added to the dot product.

MLXLM_INLINE void store_even_odd(int8_t* out, int8x16_t low, int8x16_t high) {  // of codes in natural order
  vst1q_s8(out, vuzp1q_s8(low, high));
  vst1q_s8(out + 16, vuzp2q_s8(low, high));
}

MLXLM_INLINE void quantize_group(const float* x, PackedGroup& out) {
  float32x4_t v[8];
  uint32x4_t amax = vdupq_n_u32(0);
  for (int i = 0; i < 8; ++i) {
    v[i] = vld1q_f32(x + 4 * i);
    amax = vmaxq_u32(amax, vreinterpretq_u32_f32(vabsq_f32(v[i])));
  }
  const Quantizer q = make_quantizer(vmaxvq_u32(amax));
  int32x4_t code[8], sum = vdupq_n_s32(0);
  for (int i = 0; i < 8; ++i) {
    code[i] = q.inverse == 0 ? vdupq_n_s32(0) : vcvtnq_s32_f32(vmulq_n_f32(v[i], q.inverse));
    sum = vaddq_s32(sum, code[i]);
  }
  int8x8_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = vmovn_s16(vcombine_s16(vmovn_s32(code[2 * i]), vmovn_s32(code[2 * i + 1])));
  store_even_odd(out.codes, vcombine_s8(bytes[0], bytes[1]), vcombine_s8(bytes[2], bytes[3]));
  out.code_sum = vaddvq_s32(sum);
  out.scale = q.scale;
  out.sum = q.scale * static_cast<float>(out.code_sum);
}

MLXLM_INLINE void unpack_row(int bits, const uint8_t* src, int groups, uint8_t* codes) {
  constexpr int kStride = kPanelRows * kGroup;
  if (bits == 4) {
    for (int g = 0; g < groups; ++g, src += 16, codes += kStride) {
      const uint8x16_t v = vld1q_u8(src);
      vst1q_u8(codes, vandq_u8(v, vdupq_n_u8(15)));
      vst1q_u8(codes + 16, vshrq_n_u8(v, 4));
    }
  } else if (bits == 8) {
    for (int g = 0; g < groups; ++g, src += kGroup, codes += kStride) {
      const uint8x16x2_t v = vld2q_u8(src);
      vst1q_u8(codes, veorq_u8(v.val[0], vdupq_n_u8(128)));
      vst1q_u8(codes + 16, veorq_u8(v.val[1], vdupq_n_u8(128)));
    }
  } else {
    for (int g = 0; g < groups; ++g, src += 4 * bits, codes += kStride) {
      uint8_t natural[kGroup];
      unpack_group_plain(bits, src, natural);
      const uint8x16x2_t v = vld2q_u8(natural);
      vst1q_u8(codes, v.val[0]);
      vst1q_u8(codes + 16, v.val[1]);
    }
  }
}

/// Four rows from `row` of a panel by kTokens tokens.
template <bool kSignedBytes, int kTokens>
MLXLM_INLINE void multiply_rows(const Panel& panel, int row, const PackedGroup* x, int64_t token_stride, float* acc) {
  float32x4_t sum[kTokens];
  for (int t = 0; t < kTokens; ++t) sum[t] = vld1q_f32(acc + t * kPanelRows + row);
  for (int g = 0; g < panel.groups; ++g) {
    const auto* codes = reinterpret_cast<const int8_t*>(panel.codes[g][row]);
    int8x16_t w[4][2];
    MLXLM_UNROLL
    for (int r = 0; r < 4; ++r) {
      w[r][0] = vld1q_s8(codes + r * kGroup);
      w[r][1] = vld1q_s8(codes + r * kGroup + 16);
    }
    const float32x4_t scales = vld1q_f32(panel.scales[g] + row), biases = vld1q_f32(panel.biases[g] + row);
    MLXLM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const PackedGroup& xg = x[t * token_stride + g];
      const int8x16_t x0 = vld1q_s8(xg.codes), x1 = vld1q_s8(xg.codes + 16);
      int32x4_t dot[4];
      MLXLM_UNROLL
      for (int r = 0; r < 4; ++r) dot[r] = dot_group<kSignedBytes>(w[r][0], w[r][1], x0, x1);
      int32x4_t dots = vpaddq_s32(vpaddq_s32(dot[0], dot[1]), vpaddq_s32(dot[2], dot[3]));
      if (kSignedBytes) dots = vaddq_s32(dots, vdupq_n_s32(128 * xg.code_sum));
      sum[t] = vfmaq_f32(sum[t], vcvtq_f32_s32(dots), vmulq_n_f32(scales, xg.scale));
      sum[t] = vfmaq_f32(sum[t], biases, vdupq_n_f32(xg.sum));
    }
  }
  for (int t = 0; t < kTokens; ++t) vst1q_f32(acc + t * kPanelRows + row, sum[t]);
}

template <bool kSignedBytes>
MLXLM_NOINLINE void multiply_tokens(const Panel& panel, const PackedGroup* x, int64_t token_stride, int64_t tokens,
                                    float* acc) {
  for (; tokens >= 2; tokens -= 2, x += 2 * token_stride, acc += 2 * kPanelRows) {
    for (int row = 0; row < kPanelRows; row += 4) multiply_rows<kSignedBytes, 2>(panel, row, x, token_stride, acc);
  }
  if (tokens == 1) {
    for (int row = 0; row < kPanelRows; row += 4) multiply_rows<kSignedBytes, 1>(panel, row, x, token_stride, acc);
  }
}

MLXLM_INLINE void multiply_panel(const Panel& panel, const PackedGroup* x, int64_t token_stride, int64_t tokens,
                                 float* acc) {
  if (panel.bits == 8) {
    multiply_tokens<true>(panel, x, token_stride, tokens, acc);
  } else {
    multiply_tokens<false>(panel, x, token_stride, tokens, acc);
  }
}

#include "kernels/generic/affine_blocked.inl"
