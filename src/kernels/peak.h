// What this machine can do at best: the limits that the speed of a model is compared with.
#pragma once

#include <string_view>

namespace mlxlm {

/// Rates of all threads together.
struct MachineLimits {
  double read_gb_per_s = 0;       ///< plain reads of a buffer much larger than the last-level cache; 1 GB = 1e9 bytes
  double int8_gmac_per_s = 0;     ///< int8 multiply-adds in registers, sums widened as often as 4-bit codes need
  double float32_gmac_per_s = 0;  ///< float32 fused multiply-adds in registers
};

/// Measures in about 0.4 s with one thread per core asked for. `threads` <= 0: one per usable core; `isa` as in
/// select_kernels: a limit is that of the instruction set used. Best of many short runs, so that a busy neighbour
/// lowers the figures little. Throws Error(invalid_value) for an unknown instruction set.
MachineLimits measure_machine(int threads = 0, std::string_view isa = {});

}  // namespace mlxlm
