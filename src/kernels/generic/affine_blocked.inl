// The affine products as a blocked loop: 8 rows' codes are unpacked to a panel of bytes, which passes all tokens. The
// order of codes within a group is the set's own, the same in panels and packs.
//
// The including file first defines, in the namespace this is included into (all with internal linkage):
//   void quantize_group(const float* x, PackedGroup& out);
//   void unpack_row(int bits, const uint8_t* src, int groups, uint8_t* codes);  // kPanelRows · 32 bytes between groups
//   void multiply_panel(const Panel& panel, const PackedGroup* x, int64_t token_stride, int64_t tokens, float* acc);
// after including affine_blocked.h. It gets blocked_packed_bytes, blocked_pack and blocked_matmul.

/// [tokens][k / 32] groups.
inline size_t blocked_packed_bytes(int64_t tokens, int64_t k) {
  return static_cast<size_t>(tokens * (k / kGroup)) * sizeof(PackedGroup);
}

inline void blocked_pack(const float* x, int64_t k, int64_t lo, int64_t hi, void* packed) {
  const int64_t groups = k / kGroup;
  auto* out = static_cast<PackedGroup*>(packed) + lo * groups;
  const float* end = x + hi * k;
  for (x += lo * k; x < end; x += kGroup) quantize_group(x, *out++);
}

/// Codes, scales and biases of rows [row, row + rows) and activation groups [g0, g0 + panel.groups). Missing rows of
/// the panel are zero.
inline void fill_panel(const Matrix& w, int64_t row, int rows, int64_t g0, Panel& panel) {
  const int64_t row_bytes = w.cols * w.bits / 8, weight_groups = w.cols / w.group_size;
  const int64_t repeat = w.group_size / kGroup;
  if (rows < kPanelRows) std::memset(&panel.codes, 0, sizeof panel.codes);
  for (int r = 0; r < kPanelRows; ++r) {
    if (r >= rows) {
      for (int g = 0; g < panel.groups; ++g) panel.scales[g][r] = panel.biases[g][r] = 0;
      continue;
    }
    const std::byte* data = w.data + (row + r) * row_bytes + g0 * 4 * w.bits;
    unpack_row(w.bits, reinterpret_cast<const uint8_t*>(data), panel.groups, panel.codes[0][r]);
    for (int g = 0; g < panel.groups; g += static_cast<int>(repeat)) {
      const int64_t index = (row + r) * weight_groups + (g0 + g) / repeat;
      const float scale = load_scale(w.dtype, w.scales, index), bias = load_scale(w.dtype, w.biases, index);
      for (int i = 0; i < repeat; ++i) panel.scales[g + i][r] = scale, panel.biases[g + i][r] = bias;
    }
  }
}

inline void blocked_matmul(const Matrix& w, const void* packed, int64_t tokens, int64_t lo, int64_t hi, float* out,
                           int64_t out_stride, void* scratch) {
  const int64_t groups = w.cols / kGroup;
  const auto* x = static_cast<const PackedGroup*>(packed);
  auto& panel = *static_cast<Panel*>(scratch);
  panel.bits = w.bits;
  auto* acc = reinterpret_cast<float*>(&panel + 1);  // [tokens of a block][kPanelRows]
  for (int64_t t0 = 0; t0 < tokens; t0 += kBlockTokens) {
    const int64_t block_tokens = tokens - t0 < kBlockTokens ? tokens - t0 : kBlockTokens;
    for (int64_t row = lo; row < hi; row += kPanelRows) {
      const int rows = static_cast<int>(hi - row < kPanelRows ? hi - row : kPanelRows);
      std::memset(acc, 0, static_cast<size_t>(block_tokens) * kPanelRows * sizeof *acc);
      for (int64_t g0 = 0; g0 < groups; g0 += kPanelGroups) {
        panel.groups = static_cast<int>(groups - g0 < kPanelGroups ? groups - g0 : kPanelGroups);
        fill_panel(w, row, rows, g0, panel);
        multiply_panel(panel, x + t0 * groups + g0, groups, block_tokens, acc);
      }
      for (int64_t t = 0; t < block_tokens; ++t) {
        std::memcpy(out + (t0 + t) * out_stride + row, acc + t * kPanelRows, static_cast<size_t>(rows) * sizeof *out);
      }
    }
  }
}
