// What stands behind mlxlm::Tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlxlm/tokenizer.h"
#include "text/chat_template.h"
#include "text/decode_plan.h"
#include "text/grammar_bridge.h"
#include "text/rust_bridge.h"

namespace mlxlm::text {

/// A model folder's tokenizer. Immutable after construction; safe to share between threads.
class TokenizerImpl {
 public:
  /// Reads tokenizer.json (required), tokenizer_config.json, special_tokens_map.json and the chat templates.
  explicit TokenizerImpl(const std::string& folder);

  const HfTokenizer& hf() const { return hf_; }
  const DecodePlan& decode_plan() const { return plan_; }
  const ChatTemplateSet& templates() const { return templates_; }
  bool has_thinking() const { return context_.enable_thinking; }
  std::optional<int32_t> bos_token_id() const { return bos_token_id_; }
  const std::vector<int32_t>& eos_token_ids() const { return eos_token_ids_; }

  /// For grammars; made at the first call, which takes tens of milliseconds for 50,000 tokens.
  const GrammarVocabulary& grammar_vocabulary() const;

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
  std::string render(std::string_view messages_json, const ChatTemplateOptions& options,
                     std::optional<int64_t> fixed_time = std::nullopt) const;

 private:
  TokenizerImpl(const std::string& folder, const io::Json& config);  // tokenizer_config.json

  HfTokenizer hf_;
  DecodePlan plan_;
  ChatTemplateSet templates_;
  ChatTemplateContext context_;
  std::optional<int32_t> bos_token_id_;
  std::vector<int32_t> eos_token_ids_;  // sorted
  mutable std::once_flag grammar_vocabulary_once_;
  mutable std::unique_ptr<const GrammarVocabulary> grammar_vocabulary_;
};

}  // namespace mlxlm::text
