// A conversation and its cache of keys and values, kept consistent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "mlxlm/mlxlm.h"

namespace mlxlm::cli {

/// Number of leading ids that both have.
size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b);

/// Every turn renders the whole conversation again and keeps of the cache what both share: a template may rewrite
/// earlier turns (dropping their thoughts, for example), and an answer's ids need not be those of its text. Messages
/// come in pairs: a user's message that got no answer is taken back.
class ChatSession {
 public:
  /// Takes the system prompt, the template's variables and the cache's options from `settings`.
  ChatSession(const Loaded& loaded, const GenerationSettings& settings);

  /// Adds the user's message, trims the cache, and returns the ids still to be processed (at least one).
  std::vector<int32_t> begin_turn(const std::string& user_text);
  /// The answer so far becomes part of the conversation; an empty one takes the user's message back.
  void end_turn(const std::string& answer);
  /// A new conversation; the cache is kept and reused as far as it fits.
  void reset();

  PromptCache& cache() { return cache_; }
  int64_t cached_tokens() const { return cached_tokens_; }  ///< of the prompt of the turn begun last
  size_t turns() const;                                     ///< answered ones

 private:
  Tokenizer tokenizer_;
  ChatTemplateOptions template_options_;
  std::vector<Message> messages_;
  size_t first_turn_;  // index of the first message after the system prompt
  PromptCache cache_;
  int64_t cached_tokens_ = 0;
};

}  // namespace mlxlm::cli
