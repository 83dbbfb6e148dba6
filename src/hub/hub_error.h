// Failures of the Hub that this layer tells apart; to callers they are mlxlm::Error.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "mlxlm/error.h"

namespace mlxlm::hub {

enum class Trouble {
  unreachable,  ///< no connection, or none that lasts
  busy,         ///< 429 and 5xx
  no_access,    ///< 401 and 403
  no_repo,
  no_revision,
  malformed,  ///< the answer is not what the Hub sends
};

class HubError : public Error {
 public:
  HubError(Trouble trouble, ErrorKind kind, const std::string& message) : Error(kind, message), trouble_(trouble) {}
  Trouble trouble() const { return trouble_; }

 private:
  Trouble trouble_;
};

/// Trying again may help.
class Transient : public HubError {
 public:
  Transient(Trouble trouble, const std::string& message,
            std::optional<std::chrono::milliseconds> retry_after = std::nullopt)
      : HubError(trouble, ErrorKind::io, message), retry_after_(retry_after) {}
  /// What the server asks for.
  std::optional<std::chrono::milliseconds> retry_after() const { return retry_after_; }

 private:
  std::optional<std::chrono::milliseconds> retry_after_;
};

}  // namespace mlxlm::hub
