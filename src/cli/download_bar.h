// The progress of a download on standard error: only on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "mlxlm/hub.h"

namespace mlxlm::cli {

/// One line of a download: the bar, then how much of what, how fast, and how long still. `rate`: bytes per second, 0:
/// not known yet.
std::string download_line(const DownloadProgress& progress, double rate);

/// Redrawn in place from the first second on: the user waits for the network, not for this program. Removed by clear()
/// or the destructor.
class DownloadBar {
 public:
  DownloadBar();
  ~DownloadBar() { clear(); }
  DownloadBar(const DownloadBar&) = delete;
  DownloadBar& operator=(const DownloadBar&) = delete;

  /// One call at a time, from any thread.
  void update(const DownloadProgress& progress);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  double rate(const DownloadProgress& progress, Clock::time_point now);

  bool terminal_;
  bool drawn_ = false;
  Clock::time_point last_draw_{};
  Clock::time_point measured_{};  ///< when the rate was last brought up to date
  int64_t received_ = 0;          ///< bytes at that time
  double rate_ = 0;               ///< of the last seconds, smoothed
};

}  // namespace mlxlm::cli
