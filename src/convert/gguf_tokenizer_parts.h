// The pieces of tokenizer.json that depend on the kind of tokenizer. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"
#include "io/json.h"

namespace mlxlm::conversion {

/// GGUF's numbers for kinds of tokens.
enum class TokenType : int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Token {
  std::string text;
  TokenType type = TokenType::normal;
};
using Vocabulary = std::vector<Token>;  ///< by id

/// tokenizer.ggml.tokens and token_type. Throws when they are malformed or a text stands twice.
Vocabulary read_vocabulary(const io::GgufFile& gguf);

struct TokenizerParts {
  io::Json model;
  io::Json normalizer;
  io::Json pre_tokenizer;
  io::Json post_processor;
  io::Json decoder;
  bool add_bos = false;  ///< when the file does not say
};

TokenizerParts byte_level_parts(const io::GgufFile& gguf, const Vocabulary& vocabulary);
TokenizerParts sentencepiece_parts(const io::GgufFile& gguf, const Vocabulary& vocabulary);

/// The text, checked to be UTF-8; `key` names it in the message.
std::string utf8(const io::GgufFile& gguf, std::string_view text, std::string_view key);

}  // namespace mlxlm::conversion
