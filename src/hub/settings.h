// Where the cache, the Hub and the token are: options first, then the environment variables of huggingface_hub.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "mlxlm/hub.h"

namespace mlxlm::hub {

struct Settings {
  std::string revision;  ///< "main" unless given
  std::string cache_dir;
  std::string endpoint;  ///< without a slash at the end
  std::string token;     ///< "": none
  bool offline = false;
  std::string certificates_path;         ///< PEM file of the authorities to trust (SSL_CERT_FILE); "": Mozilla's
  std::chrono::milliseconds timeout{0};  ///< to connect, and for each wait for more bytes
};

/// The value of an environment variable; none where it is unset or empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

/// Throws Error(invalid_value) naming the variable or option that does not make sense.
Settings resolve_settings(const HubOptions& options, const Environment& environment = process_environment);

}  // namespace mlxlm::hub
