// Where the time of forward passes goes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace mlxlm::nn {

/// The parts of a pass, in the order they run. Attention includes rope and storing keys and values; a norm or an
/// activation counts to the product it feeds.
enum class PassPart : uint8_t { setup, qkv, attention, output, gate_up, down, head };
inline constexpr size_t kPassParts = 7;
inline constexpr std::array<const char*, kPassParts> kPassPartNames = {
    "setup and embedding", "q, k, v", "rope and attention", "attention output", "gate and up", "down", "head"};

/// Seconds of each part, summed over layers and passes.
class PassProfile {
 public:
  void start() { last_ = Clock::now(); }
  /// The time since start() or the last lap() belongs to `part`.
  void lap(PassPart part) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<size_t>(part)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  const std::array<double, kPassParts>& seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point last_;
  std::array<double, kPassParts> seconds_{};
};

}  // namespace mlxlm::nn
