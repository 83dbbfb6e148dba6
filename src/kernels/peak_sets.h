// The inner loops of the machine's limits, one table per instruction set. No standard headers' templates are used in
// the files that implement them: they export nothing but the table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mlxlm {

struct PeakKernels {
  const char* isa;
  /// XOR of all bytes, folded: [data, data + bytes), bytes a multiple of 1024.
  uint64_t (*read)(const std::byte* data, size_t bytes);
  /// Runs at least `rounds` rounds and returns the multiply-adds done.
  int64_t (*int8_macs)(int64_t rounds);
  int64_t (*float32_macs)(int64_t rounds);
};

namespace scalar {
extern const PeakKernels kPeak;
}
namespace avx2 {
extern const PeakKernels kPeak;
}
namespace neon {
extern const PeakKernels kPeak;
}
namespace neon_dot {
extern const PeakKernels kPeak;
int64_t int8_macs(int64_t rounds);
}  // namespace neon_dot

}  // namespace mlxlm
