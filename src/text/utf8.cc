#include "text/utf8.h"

#include "base/error.h"

namespace mlxlm::text {
namespace {

/// Continuation bytes after a lead byte, and the range of the first one (Unicode table 3-7); 0 for an ill-formed lead.
struct Lead {
  size_t missing;
  unsigned char low, high;
};

Lead classify(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      ++i;
      continue;
    }
    Lead lead = classify(byte);
    if (lead.missing == 0 || text.size() - i <= lead.missing) return i;
    for (size_t k = 1; k <= lead.missing; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if (next < lead.low || next > lead.high) return i;
      lead.low = 0x80;
      lead.high = 0xBF;
    }
    i += lead.missing + 1;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, std::string_view what) {
  if (const auto at = find_invalid_utf8(text)) {
    throw_invalid("{}: expected UTF-8, got the byte 0x{:02X} at offset {}; convert the text to UTF-8 first", what,
                  static_cast<unsigned char>(text[*at]), *at);
  }
}

void Utf8Stream::append(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) append_byte(static_cast<unsigned char>(byte), out, false);
}

void Utf8Stream::append_per_byte(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) append_byte(static_cast<unsigned char>(byte), out, true);
}

void Utf8Stream::append_byte(unsigned char byte, std::string& out, bool per_byte) {
  if (missing_ > 0) {
    if (byte >= low_ && byte <= high_) {
      pending_.push_back(static_cast<char>(byte));
      low_ = 0x80;
      high_ = 0xBF;
      if (--missing_ == 0) {
        out += pending_;
        pending_.clear();
      }
      return;
    }
    flush(out, per_byte);  // the byte then starts anew
  }
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  const Lead lead = classify(byte);
  if (lead.missing == 0) {
    out += kReplacement;
    return;
  }
  pending_.assign(1, static_cast<char>(byte));
  missing_ = lead.missing;
  low_ = lead.low;
  high_ = lead.high;
}

void Utf8Stream::flush(std::string& out, bool per_byte) {
  const size_t count = pending_.empty() ? 0 : per_byte ? pending_.size() : 1;
  for (size_t i = 0; i < count; ++i) out += kReplacement;
  pending_.clear();
  missing_ = 0;
}

}  // namespace mlxlm::text
