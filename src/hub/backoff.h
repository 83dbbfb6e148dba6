// Trying again: how often, and after which pause.
#pragma once

#include <chrono>
#include <stop_token>
#include <string_view>

#include "hub/hub_error.h"

namespace mlxlm::hub {

/// Throws Error(cancelled) once a stop was requested.
void throw_if_cancelled(const std::stop_token& cancel);
/// Sleeps, or throws Error(cancelled) as soon as a stop is requested.
void pause_for(std::chrono::milliseconds time, const std::stop_token& cancel);

/// The pause that the headers of a 429 or 503 ask for: Retry-After in seconds, or the t of the Hub's RateLimit
/// ("api";r=0;t=55). None where neither says.
std::optional<std::chrono::milliseconds> requested_pause(std::string_view retry_after, std::string_view rate_limit);

/// Counts the attempts at one thing.
class Backoff {
 public:
  /// `attempts`: the most in a row without progress; 1: never again.
  Backoff(int attempts, std::stop_token cancel) : attempts_(attempts), cancel_(std::move(cancel)) {}
  /// There was progress: the next failure counts as the first.
  void reset() { failures_ = 0; }
  /// After a failure: pauses, or throws an Error that says how often it was tried when that was enough, or when the
  /// server asks for a longer pause than anybody waits.
  void after(const Transient& failure);

 private:
  int attempts_;
  int failures_ = 0;
  std::stop_token cancel_;
};

}  // namespace mlxlm::hub
