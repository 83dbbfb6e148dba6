// Adds up what many workers do, and tells the caller.
#pragma once

#include <functional>
#include <mutex>

#include "mlxlm/hub.h"

namespace mlxlm::hub {

/// Safe to use from many threads. The callback runs under a lock, so it sees one state after the other; what it throws
/// ends the download.
class ProgressMeter {
 public:
  using Callback = std::function<void(const DownloadProgress&)>;
  explicit ProgressMeter(Callback callback) : callback_(std::move(callback)) {}

  void start(DownloadProgress::Stage stage, int files_total, int64_t bytes_total) {
    const std::lock_guard lock(mutex_);
    state_ = {stage, 0, bytes_total, state_.bytes_received, 0, files_total};
    tell();
  }
  /// `bytes` may be negative: a file starts again.
  void add(int64_t bytes, int64_t received) {
    const std::lock_guard lock(mutex_);
    state_.bytes_done += bytes;
    state_.bytes_received += received;
    tell();
  }
  void file_done() {
    const std::lock_guard lock(mutex_);
    ++state_.files_done;
    tell();
  }

 private:
  void tell() const {
    if (callback_) callback_(state_);
  }

  Callback callback_;
  std::mutex mutex_;
  DownloadProgress state_;
};

}  // namespace mlxlm::hub
