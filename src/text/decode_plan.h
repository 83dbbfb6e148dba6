// How a tokenizer turns tokens into text: the "decoder" of tokenizer.json, reduced to steps on one token at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"

namespace mlxlm::text {

struct DecodePlan {
  enum class Kind {
    byte_level,  ///< every character of a token stands for a byte (GPT-2's map)
    pieces,      ///< tokens are text, after the steps below
    whole,       ///< a decoder whose output for a token depends on more than this: all ids are decoded together
  };
  /// One step on a token of kind `pieces`.
  struct Step {
    enum class Kind { replace, strip, metaspace } kind = Kind::replace;
    std::string from, to;        ///< replace: every `from` becomes `to`; strip and metaspace: the character `from`
    size_t left = 0, right = 0;  ///< strip: at most this many characters on each side
    bool drop_in_first = false;  ///< metaspace: in the first token `from` vanishes instead of becoming a space
  };

  Kind kind = Kind::whole;
  std::vector<Step> steps;
  bool byte_fallback = false;  ///< tokens "<0x0A>" stand for bytes
  std::string separator;       ///< between tokens: a space when there is no decoder at all
  std::string strip_char;      ///< dropped at the start of the whole text…
  size_t strip_left = 0;       ///< …at most this many times
};

/// `decoder` is the object of tokenizer.json, or null.
DecodePlan make_decode_plan(const io::Json& decoder);

/// A token of kind `pieces` after the steps; `first`: it begins the text.
void apply_steps(const DecodePlan& plan, bool first, std::string& piece);

/// What a token adds to the text, as bytes; those of several tokens may make one character. Not for kind `whole`.
std::string token_bytes(const DecodePlan& plan, std::string piece, bool first);

/// The byte that a "<0xNN>" token stands for, or −1.
int fallback_byte(std::string_view token);

/// The bytes of a byte-level token; a token with a character outside the map (an added token) is taken as it is.
void append_byte_level(std::string_view token, std::string& bytes);

}  // namespace mlxlm::text
