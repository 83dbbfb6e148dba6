// Throwing errors with formatted messages.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "mlxlm/error.h"

namespace mlxlm {

/// throw_error(ErrorKind::invalid_value, "{}: expected {}, got {}", path, expected, got)
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_invalid(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::invalid_value, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mlxlm
