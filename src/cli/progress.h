// Progress on standard error: only on a terminal, and only for work that takes longer than a second.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace mlxlm::cli {

inline constexpr std::chrono::milliseconds kRedraw{100};  ///< faster than the eye follows, slow enough to cost nothing
inline constexpr const char* kEraseLine = "\r\x1b[K";

/// One line of progress: "label [=====>     ] 42 %". At most 50 characters of bar and figures beside the label.
std::string progress_line(const std::string& label, int64_t done, int64_t total);

/// A bar that is redrawn in place and removed by clear() or the destructor. Used from one thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, int64_t total);
  /// A line of the caller's own instead of the bar.
  void show(const std::string& line);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_draw_;
};

/// Says what is being waited for once a second has passed; removed at the end of its life.
class WaitMessage {
 public:
  explicit WaitMessage(std::string text);
  ~WaitMessage();
  WaitMessage(const WaitMessage&) = delete;
  WaitMessage& operator=(const WaitMessage&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::thread thread_;  ///< not started without a terminal
};

}  // namespace mlxlm::cli
