// How many of its cases a long test tries.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace mlxlm {

/// All of them; a share of 1 / MLXLM_TEST_DIVISOR, at least one, where that variable is set: under sanitizers and in an
/// emulated machine, where a case takes twenty times as long.
inline int cases_of(int all) {
  const char* text = std::getenv("MLXLM_TEST_DIVISOR");
  return text == nullptr ? all : std::max(1, all / std::max(1, std::atoi(text)));
}

/// Whether every combination is tried, not only each value once.
inline bool all_combinations() { return cases_of(2) == 2; }

}  // namespace mlxlm
