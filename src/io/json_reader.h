// A pull reader of JSON text: the caller asks for what it expects, so a huge document costs no tree.
// Goals: linear time, bounded depth, errors with line and column. Accepts what Python's json.load accepts, NaN and
// Infinity included, except lone surrogates, which UTF-8 cannot hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace mlxlm::io {

/// Reads one document from text that outlives it. Belongs to one thread.
class JsonReader {
 public:
  /// `where` (a path) stands first in every message.
  JsonReader(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  enum class Kind { object, array, string, number, boolean, null, end };
  /// What comes next, without consuming it. Throws when it cannot start a value.
  Kind peek();

  void begin_object();
  /// Reads the next key and its colon; false when the object ends.
  bool next_key(std::string& key);
  void begin_array();
  /// True when another element follows; false when the array ends.
  bool next_element();

  std::string read_string();
  /// An integer in [0, 2⁶³); `what` names it in the message.
  int64_t read_size(std::string_view what);
  void skip_value();
  /// The next value as a tree; of duplicate keys the last value counts, in the place of the first.
  Json read_value();
  /// Requires that nothing but white space is left.
  void finish();

  [[noreturn]] void fail(std::string_view message) const;

 private:
  void skip_space();
  void expect(char c, std::string_view what);
  void enter();
  bool continues(char close, std::string_view what);
  std::string_view read_word();
  Json read_number_or_word();
  Json read_number(std::string_view literal) const;
  Json read_object();
  void read_escape(std::string& out);
  uint32_t read_hex4();
  size_t utf8_length() const;

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
  std::vector<bool> first_;  ///< one entry for each open object or array: no member read yet
};

}  // namespace mlxlm::io
