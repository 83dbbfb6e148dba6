// The floating-point control word: round to nearest, no flushing of denormals, whatever the caller had set.
#pragma once

#include <cstdint>

namespace mlxlm {

/// Sets the standard mode for this thread and restores the caller's on destruction. Every public entry that computes,
/// and every worker thread, holds one, so an embedding program's -ffast-math start-up code cannot change results.
class FloatControl {
 public:
  FloatControl();
  ~FloatControl();
  FloatControl(const FloatControl&) = delete;
  FloatControl& operator=(const FloatControl&) = delete;

 private:
  uint64_t saved_ = 0;
};

}  // namespace mlxlm
