#include "cli/prompt.h"

#include <array>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/format.h"
#include "io/json.h"
#include "text/utf8.h"

namespace mlxlm::cli {
namespace {

void check_utf8(std::string_view text, const std::string& where) {
  if (const auto offset = text::find_invalid_utf8(text)) {
    throw_invalid("{}: expected UTF-8 text, got the byte 0x{:02x} at offset {}; convert it first (iconv -t utf-8)",
                  where, static_cast<unsigned char>(text[*offset]), *offset);
  }
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 80;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; };
  std::string out;
  size_t i = 0;
  while (i < text.size() && (i < kLongest || continues(text[i]))) {
    // Everything up to the next ill-formed byte is text, but for control characters.
    const size_t valid_end = i + text::find_invalid_utf8(text.substr(i)).value_or(text.size() - i);
    for (; i < valid_end && (i < kLongest || continues(text[i])); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      out += c < 0x20 || c == 0x7F ? format_text("\\x{:02x}", c) : std::string(1, text[i]);
    }
    if (i == valid_end && i < text.size()) out += format_text("\\x{:02x}", static_cast<unsigned char>(text[i++]));
  }
  return i < text.size() ? out + "…" : out;
}

std::string unescape_prompt(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\\' && (next == 'n' || next == 't')) {
      out += next == 'n' ? '\n' : '\t';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<int32_t> parse_numbers(std::string_view option, std::string_view text) {
  std::vector<int32_t> numbers;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view entry = text.substr(0, comma);
    while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
    while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
    int32_t number = -1;
    const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (error != std::errc() || stop != entry.data() + entry.size() || number < 0) {
      throw_invalid("{}: expected whole numbers separated by commas, such as 5,7,9; entry {} is '{}'", option,
                    numbers.size() + 1, printable(entry));
    }
    numbers.push_back(number);
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

std::string read_prompt_stdin() {
  std::string text;
  std::array<char, 1 << 16> buffer;
  size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), stdin)) > 0) text.append(buffer.data(), count);
  if (std::ferror(stdin)) throw_error(ErrorKind::io, "standard input: cannot read the prompt");
  check_utf8(text, "standard input");
  return text;
}

std::string read_prompt_file(const std::string& path) {
  std::string text = io::read_text_file(path);
  check_utf8(text, path);
  return text;
}

}  // namespace mlxlm::cli
