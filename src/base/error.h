// Throwing errors with formatted messages.
#pragma once

#include "base/format.h"
#include "mlxlm/error.h"

namespace mlxlm {

/// throw_error(ErrorKind::invalid_value, "{}: expected {}, got {}", path, expected, got)
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, format_arguments(format, fmt::make_format_args(args...)));
}

template <typename... Args>
[[noreturn]] void throw_invalid(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::invalid_value, format_arguments(format, fmt::make_format_args(args...)));
}

}  // namespace mlxlm
