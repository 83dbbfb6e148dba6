#include "io/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace mlxlm::io {
namespace {

// Deeper than any configuration or tool schema, shallow enough for recursion on the smallest thread stack.
constexpr size_t kMaxDepth = 256;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_word_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' || c == '.';
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

// The grammar of RFC 8259, which from_chars alone does not enforce (it takes "1." and ".5").
bool is_json_number(std::string_view s, bool& integer) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < s.size() && is_digit(s[i])) ++i;
    return i > start;
  };
  integer = true;
  if (i < s.size() && s[i] == '-') ++i;
  const bool leading_zero = i < s.size() && s[i] == '0';
  const size_t first = i;
  if (!digits() || (leading_zero && i > first + 1)) return false;
  if (i < s.size() && s[i] == '.') {
    ++i;
    integer = false;
    if (!digits()) return false;
  }
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    ++i;
    integer = false;
    if (i < s.size() && (s[i] == '+' || s[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == s.size();
}

}  // namespace

void JsonReader::fail(std::string_view message) const {
  const size_t end = std::min(at_, text_.size());
  const auto before = text_.substr(0, end);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? end + 1 : end - newline;
  throw_invalid("{}: line {}, column {}: {}", where_, line, column, message);
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

void JsonReader::expect(char c, std::string_view what) {
  skip_space();
  if (at_ >= text_.size()) fail(format_text("expected {}, got the end of the text", what));
  if (text_[at_] != c) fail(format_text("expected {}", what));
  ++at_;
}

JsonReader::Kind JsonReader::peek() {
  skip_space();
  if (at_ >= text_.size()) return Kind::end;
  switch (text_[at_]) {
    case '{':
      return Kind::object;
    case '[':
      return Kind::array;
    case '"':
      return Kind::string;
    case 't':
    case 'f':
      return Kind::boolean;
    case 'n':
      return Kind::null;
    default:
      break;
  }
  if (text_[at_] == '-' || is_digit(text_[at_]) || text_[at_] == 'N' || text_[at_] == 'I') return Kind::number;
  fail("expected a JSON value");
}

void JsonReader::enter() {
  if (first_.size() >= kMaxDepth) fail(format_text("nested deeper than {} levels", kMaxDepth));
  first_.push_back(true);
}

void JsonReader::begin_object() {
  expect('{', "an object");
  enter();
}

void JsonReader::begin_array() {
  expect('[', "an array");
  enter();
}

bool JsonReader::continues(char close, std::string_view what) {
  skip_space();
  if (at_ < text_.size() && text_[at_] == close) {
    ++at_;
    first_.pop_back();
    return false;
  }
  if (!first_.back()) expect(',', what);
  first_.back() = false;
  return true;
}

bool JsonReader::next_key(std::string& key) {
  if (!continues('}', "',' or '}'")) return false;
  if (peek() != Kind::string) fail("expected a key in double quotes");
  key = read_string();
  expect(':', "':' after the key");
  return true;
}

bool JsonReader::next_element() { return continues(']', "',' or ']'"); }

uint32_t JsonReader::read_hex4() {
  uint32_t code = 0;
  if (text_.size() - at_ < 4) fail("\\u needs four hexadecimal digits");
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, begin + 4, code, 16);
  if (error != std::errc{} || end != begin + 4) fail("\\u needs four hexadecimal digits");
  at_ += 4;
  return code;
}

void JsonReader::read_escape(std::string& out) {
  if (at_ >= text_.size()) fail("unterminated string");
  static constexpr std::string_view kNames = "\"\\/bfnrt";
  static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  const char c = text_[at_++];
  if (c == 'u') {
    uint32_t code = read_hex4();
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const uint32_t low = read_hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("a lone surrogate in a string");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xD800 && code < 0xE000) {
      fail("a lone surrogate in a string");
    }
    append_utf8(out, code);
    return;
  }
  const size_t known = kNames.find(c);
  if (known == std::string_view::npos) fail("unknown escape in a string");
  out.push_back(kValues[known]);
}

// Bytes of the well-formed UTF-8 sequence that starts here, 0 when it is malformed (overlong, surrogate, cut).
size_t JsonReader::utf8_length() const {
  const auto byte = [this](size_t i) -> uint32_t {
    return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u;
  };
  const uint32_t lead = byte(0);
  const size_t n = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return n;
}

std::string JsonReader::read_string() {
  expect('"', "a string");
  std::string out;
  while (true) {
    if (at_ >= text_.size()) fail("unterminated string");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c < 0x20) fail("a control character in a string");
    if (c == '\\') {
      ++at_;
      read_escape(out);
      continue;
    }
    const size_t n = utf8_length();
    if (n == 0) fail("a string is not valid UTF-8");
    out.append(text_.substr(at_, n));
    at_ += n;
  }
  ++at_;
  return out;
}

std::string_view JsonReader::read_word() {
  skip_space();
  const size_t start = at_;
  while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
  const auto word = text_.substr(start, at_ - start);
  if (word.empty()) fail("expected a JSON value");
  return word;
}

int64_t JsonReader::read_size(std::string_view what) {
  skip_space();
  const size_t start = at_;
  const auto kind = peek();
  const auto word = kind == Kind::number ? read_word() : std::string_view{};
  int64_t value = -1;
  bool integer = false;
  const bool ok = is_json_number(word, integer) && integer &&
                  std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc{} && value >= 0;
  if (!ok) {
    at_ = start;
    fail(format_text("{}: expected a whole number of at least 0 and below 2^63, got {}", what,
                     word.empty() ? "something else" : word.substr(0, 40)));
  }
  return value;
}

Json JsonReader::read_number(std::string_view literal) const {
  bool integer = false;
  if (!is_json_number(literal, integer)) fail(format_text("malformed value '{}'", literal.substr(0, 40)));
  const char* begin = literal.data();
  const char* end = begin + literal.size();
  if (integer) {
    int64_t whole = 0;
    if (std::from_chars(begin, end, whole).ec == std::errc{}) return whole;
    uint64_t large = 0;
    if (std::from_chars(begin, end, large).ec == std::errc{}) return large;
  }
  double value = 0;
  if (std::from_chars(begin, end, value).ec == std::errc{}) return value;
  // Beyond double: the wider type tells overflow (∞, as in Python) from underflow (0).
  long double wide = 0;
  if (std::from_chars(begin, end, wide).ec == std::errc{}) return static_cast<double>(wide);
  fail(format_text("number out of range: '{}'", literal.substr(0, 40)));
}

Json JsonReader::read_number_or_word() {
  const size_t start = at_;
  const auto word = read_word();
  if (word == "true") return true;
  if (word == "false") return false;
  if (word == "null") return nullptr;
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  const size_t end = at_;
  at_ = start;  // a message points at the start of the literal
  Json value = read_number(word);
  at_ = end;
  return value;
}

Json JsonReader::read_object() {
  std::vector<std::pair<std::string, Json>> members;
  begin_object();
  for (std::string key; next_key(key);) {
    Json value = read_value();
    members.emplace_back(std::move(key), std::move(value));
  }
  return make_object(std::move(members));
}

Json JsonReader::read_value() {
  switch (peek()) {
    case Kind::object:
      return read_object();
    case Kind::array: {
      Json array = Json::array();
      begin_array();
      while (next_element()) array.get_ref<Json::array_t&>().push_back(read_value());
      return array;
    }
    case Kind::string:
      return read_string();
    case Kind::end:
      fail("expected a JSON value, got the end of the text");
    default:
      return read_number_or_word();
  }
}

void JsonReader::skip_value() {
  switch (peek()) {
    case Kind::object: {
      begin_object();
      for (std::string key; next_key(key);) skip_value();
      return;
    }
    case Kind::array:
      begin_array();
      while (next_element()) skip_value();
      return;
    default:
      read_value();
  }
}

void JsonReader::finish() {
  skip_space();
  if (at_ < text_.size()) fail("unexpected text after the JSON value");
}

}  // namespace mlxlm::io
