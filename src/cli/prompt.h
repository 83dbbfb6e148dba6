// Prompts from the command line: reading, unescaping, checking.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mlxlm::cli {

/// The text for an error message: bytes that are not printable or not UTF-8 as \xNN, cut after 80 bytes.
std::string printable(std::string_view text);

/// Turns the two-character sequences \n and \t into a newline and a tab, as mlx_lm.generate does.
std::string unescape_prompt(std::string_view text);

/// "5,7,9" (spaces allowed) as numbers that are not negative. Throws Error(invalid_value) naming option and entry.
std::vector<int32_t> parse_numbers(std::string_view option, std::string_view text);

/// All of standard input, or of a file; checked to be UTF-8.
std::string read_prompt_stdin();
std::string read_prompt_file(const std::string& path);

}  // namespace mlxlm::cli
