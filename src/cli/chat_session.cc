#include "cli/chat_session.h"

#include <algorithm>

namespace mlxlm::cli {

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const size_t length = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(length), b.begin()).first - a.begin());
}

ChatSession::ChatSession(const Loaded& loaded, const GenerationSettings& settings)
    : tokenizer_(loaded.tokenizer), cache_(loaded.model, cache_options(settings)) {
  template_options_.variables_json = settings.chat_template_config;
  if (settings.system_prompt) messages_.push_back({"system", *settings.system_prompt});
  first_turn_ = messages_.size();
}

std::vector<int32_t> ChatSession::begin_turn(const std::string& user_text) {
  std::vector<Message> next = messages_;
  next.push_back({"user", user_text});
  std::vector<int32_t> ids = tokenizer_.apply_chat_template(next, template_options_);
  const size_t shared = common_prefix(cache_.tokens(), ids);
  // The last token is always computed: its logits choose the first token of the answer.
  const size_t reusable = std::min(shared, ids.empty() ? 0 : ids.size() - 1);
  cache_.trim(cache_.size() - static_cast<int64_t>(reusable));
  cached_tokens_ = cache_.size();  // fewer than asked for where a sliding window has moved on
  messages_ = std::move(next);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cached_tokens_));
  return ids;
}

void ChatSession::end_turn(const std::string& answer) {
  if (answer.empty()) {
    messages_.pop_back();
  } else {
    messages_.push_back({"assistant", answer});
  }
}

void ChatSession::reset() { messages_.resize(first_turn_); }

size_t ChatSession::turns() const { return (messages_.size() - first_turn_) / 2; }

}  // namespace mlxlm::cli
