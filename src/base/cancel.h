// Whether the caller of a long computation has asked it to stop.
#pragma once

#include <functional>
#include <stop_token>
#include <utility>

namespace mlxlm {

/// A stop token, and a function that is asked often on the thread that computes.
class CancelCheck {
 public:
  CancelCheck() = default;
  /// interrupted: may be null or empty; outlives the check.
  explicit CancelCheck(std::stop_token token, const std::function<bool()>* interrupted = nullptr)
      : token_(std::move(token)), interrupted_(interrupted) {}

  bool requested() const {
    return token_.stop_requested() || (interrupted_ != nullptr && *interrupted_ && (*interrupted_)());
  }

 private:
  std::stop_token token_;
  const std::function<bool()>* interrupted_ = nullptr;
};

}  // namespace mlxlm
