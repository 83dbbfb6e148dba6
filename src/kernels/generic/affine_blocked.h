// The shapes affine_blocked.inl works in.
#pragma once

#include "kernels/generic/affine_common.h"

namespace mlxlm {
namespace {

/// 32 quantised activations of one token.
struct alignas(16) PackedGroup {
  int8_t codes[kGroup];
  float scale;
  float sum;  ///< scale · (float)code_sum
  int32_t code_sum;
};

constexpr int kPanelRows = 8;
/// 1,024 values of K: a panel's codes are 8 KiB, a quarter of L1, and a multiple of every weight group.
constexpr int kPanelGroups = 32;
/// Tokens whose results are kept while K is walked: 64 KiB of floats, in L2.
constexpr int64_t kBlockTokens = 2048;

struct Panel {
  alignas(64) uint8_t codes[kPanelGroups][kPanelRows][kGroup];
  float scales[kPanelGroups][kPanelRows];
  float biases[kPanelGroups][kPanelRows];
  int groups;
  int bits;
};

static_assert(sizeof(Panel) + kBlockTokens * kPanelRows * sizeof(float) <= kScratchBytes);

}  // namespace
}  // namespace mlxlm
