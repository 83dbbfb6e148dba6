#include "hub/backoff.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>

#include "base/error.h"
#include "base/format.h"

namespace mlxlm::hub {
namespace {

constexpr std::chrono::milliseconds kFirstPause{500};  // doubled each time
constexpr std::chrono::milliseconds kLongestPause{30'000};
// The Hub's rate limits are for windows of five minutes.
constexpr std::chrono::milliseconds kLongestRequest{300'000};

std::optional<std::chrono::milliseconds> seconds_of(std::string_view text) {
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::nullopt;
  return std::chrono::seconds(seconds);
}

}  // namespace

void throw_if_cancelled(const std::stop_token& cancel) {
  if (cancel.stop_requested()) throw_error(ErrorKind::cancelled, "the download was stopped");
}

void pause_for(std::chrono::milliseconds time, const std::stop_token& cancel) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, cancel, time, [] { return false; });
  throw_if_cancelled(cancel);
}

std::optional<std::chrono::milliseconds> requested_pause(std::string_view retry_after, std::string_view rate_limit) {
  if (const auto pause = seconds_of(retry_after)) return pause;
  const size_t start = rate_limit.find(";t=");
  if (start == std::string_view::npos) return std::nullopt;
  rate_limit.remove_prefix(start + 3);
  return seconds_of(rate_limit.substr(0, rate_limit.find_first_of("; ,")));
}

void Backoff::after(const Transient& failure) {
  throw_if_cancelled(cancel_);
  ++failures_;
  if (failures_ >= attempts_) {
    const std::string times = failures_ == 1 ? "" : format_text(" (tried {} times)", failures_);
    throw HubError(failure.trouble(), ErrorKind::io, failure.what() + times);
  }
  std::chrono::milliseconds pause = std::min(kFirstPause * (1 << std::min(failures_ - 1, 10)), kLongestPause);
  if (const auto asked = failure.retry_after()) {
    if (*asked > kLongestRequest) {
      throw HubError(failure.trouble(), ErrorKind::io,
                     format_text("{}; it asks to wait {} s: try again then", failure.what(), asked->count() / 1000));
    }
    pause = *asked;
  }
  pause_for(pause, cancel_);
}

}  // namespace mlxlm::hub
