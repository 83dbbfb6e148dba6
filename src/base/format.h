// Formatted text: fmt's format strings, checked while compiling; the formatting itself is compiled once, in format.cc.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace mlxlm {

std::string format_arguments(fmt::string_view text, fmt::format_args args);

/// format_text("{}: expected {}, got {}", path, expected, got)
template <typename... Args>
std::string format_text(fmt::format_string<Args...> text, Args&&... args) {
  return format_arguments(text, fmt::make_format_args(args...));
}

/// The elements, each as format_text writes it, with the separator between them.
template <typename Range>
std::string join(const Range& elements, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& element : elements) {
    if (!first) text += separator;
    first = false;
    text += format_text("{}", element);
  }
  return text;
}

}  // namespace mlxlm
