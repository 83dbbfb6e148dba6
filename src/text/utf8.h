// UTF-8: checking text that comes in, and decoding bytes that come in pieces.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mlxlm::text {

/// U+FFFD, which stands for bytes that are not UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Byte offset of the first ill-formed sequence, or nothing when all of `text` is UTF-8.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Throws Error(invalid_value) with the byte offset unless `text` is UTF-8. `what` names the argument.
void require_utf8(std::string_view text, std::string_view what);

/// Turns bytes that arrive in pieces into text. A character is given out when its last byte arrives, never a part of
/// it. Ill-formed bytes become U+FFFD: one for each maximal part of a character, as Unicode recommends.
class Utf8Stream {
 public:
  /// Appends to `out` what has become complete.
  void append(std::string_view bytes, std::string& out);
  /// The unfinished character becomes one U+FFFD, or one for each byte if `per_byte`. The stream is empty afterwards.
  void flush(std::string& out, bool per_byte = false);
  /// As append, but each ill-formed byte becomes a U+FFFD of its own.
  void append_per_byte(std::string_view bytes, std::string& out);

 private:
  void append_byte(unsigned char byte, std::string& out, bool per_byte);

  std::string pending_;                     // the unfinished character
  size_t missing_ = 0;                      // bytes it still needs
  unsigned char low_ = 0x80, high_ = 0xBF;  // what its next byte may be
};

}  // namespace mlxlm::text
