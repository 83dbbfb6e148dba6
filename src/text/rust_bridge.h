// Owners for the handles of rust/include/mlxlm_text.h; failures become mlxlm::Error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlxlm_text.h"

namespace mlxlm::text {

/// A tokenizer of the tokenizers crate. Immutable; safe to share between threads.
class HfTokenizer {
 public:
  /// From the text of a tokenizer.json; `where` (its path) stands first in messages.
  HfTokenizer(std::string_view json, std::string where, MlxlmPrefix prefix = MLXLM_PREFIX_OF_FILE);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  /// The crate's own decoding of all ids at once; unknown ids are left out.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
  /// Puts the vocabulary's text of a token into `token`, reusing its memory; false for an unknown id.
  bool id_to_token(int32_t id, std::string& token) const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  bool is_special(int32_t id) const;
  int32_t vocab_size() const;
  std::string decoder_json() const;
  const std::string& where() const { return where_; }
  const MlxlmTokenizer* handle() const { return handle_.get(); }

 private:
  struct Deleter {
    void operator()(MlxlmTokenizer* handle) const { mlxlm_tokenizer_free(handle); }
  };
  std::unique_ptr<MlxlmTokenizer, Deleter> handle_;
  std::string where_;
};

/// A compiled Jinja template. Immutable; safe to share between threads.
class JinjaTemplate {
 public:
  /// `where` (a path) stands first in messages.
  JinjaTemplate(std::string_view source, std::string where);

  /// Renders with the members of a JSON object as variables. `fixed_time` (seconds since the epoch, read as UTC) stands
  /// in for the system's local time in strftime_now.
  std::string render(std::string_view variables_json, std::optional<int64_t> fixed_time = std::nullopt) const;
  const std::string& where() const { return where_; }

 private:
  struct Deleter {
    void operator()(MlxlmTemplate* handle) const { mlxlm_template_free(handle); }
  };
  std::unique_ptr<MlxlmTemplate, Deleter> handle_;
  std::string where_;
};

}  // namespace mlxlm::text
