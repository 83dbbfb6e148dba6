// Logits processors that force tokens of a text: a prefix, and the end of thinking.
#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "sampling/processors.h"
#include "text/utf8.h"

namespace mlxlm {
namespace sampling {
namespace {

class ForcePrefix : public CloneableProcessor<ForcePrefix> {
 public:
  explicit ForcePrefix(std::vector<int32_t> ids) : ids_(std::move(ids)) {}

  void start(const Start& start) override {
    generation_.set(start);
    require_ids("force_prefix", ids_, start.vocab_size);
  }
  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    if (const auto id = forced_token(tokens)) ban_all_but(*id, logits);
  }
  std::optional<int32_t> forced_token(std::span<const int32_t> tokens) override {
    const size_t n = generation_.generated(tokens).size();
    return n < ids_.size() ? std::optional(ids_[n]) : std::nullopt;
  }
  std::string name() const override { return "force_prefix"; }

 private:
  std::vector<int32_t> ids_;
  GenerationStart generation_;
};

/// The ids that begin and end a reasoning section.
struct ThinkMarkers {
  std::vector<int32_t> start;
  int32_t end;
};

ThinkMarkers find_markers(const Tokenizer& tokenizer) {
  struct Texts {
    const char* start_token;
    const char* start;  ///< begins with start_token
    const char* end;
  };
  constexpr Texts kMarkers[] = {{"<think>", "<think>", "</think>"},
                                {"<longcat_think>", "<longcat_think>", "</longcat_think>"},
                                {"<|think:start|>", "<|think:start|>", "<|think:end|>"},
                                {"<|channel>", "<|channel>thought", "<channel|>"}};
  for (const Texts& texts : kMarkers) {
    const auto start = tokenizer.token_to_id(texts.start_token), end = tokenizer.token_to_id(texts.end);
    if (!start || !end) continue;
    std::vector<int32_t> ids = tokenizer.encode(texts.start, false);
    // A text form without the token: some tokenizers put a space token before it.
    ids.erase(ids.begin(), std::find(ids.begin(), ids.end(), *start));
    if (ids.empty()) ids.push_back(*start);
    return {std::move(ids), *end};
  }
  throw_invalid(
      "thinking_budget: the vocabulary has no think markers such as <think> and </think>, so this model's thinking "
      "cannot be told from its answer");
}

class ThinkingBudget : public CloneableProcessor<ThinkingBudget> {
 public:
  ThinkingBudget(ThinkMarkers markers, int64_t budget) : markers_(std::move(markers)), budget_(budget) {}

  void start(const Start& start) override {
    require_ids("thinking_budget", markers_.start, start.vocab_size);
    require_ids("thinking_budget", {&markers_.end, 1}, start.vocab_size);
    prompt_length_ = start.prompt.size();
    restart();
  }
  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    if (const auto id = forced_token(tokens)) ban_all_but(*id, logits);
  }
  std::optional<int32_t> forced_token(std::span<const int32_t> tokens) override {
    if (tokens.size() < read_) restart();
    for (; read_ < tokens.size(); ++read_) read(tokens.first(read_ + 1));
    return thinking_ && spent_ >= budget_ ? std::optional(markers_.end) : std::nullopt;
  }
  std::string name() const override { return "thinking_budget"; }

 private:
  void restart() {
    read_ = 0;
    thinking_ = false;
    spent_ = 0;
  }
  /// Takes in the last of the tokens.
  void read(std::span<const int32_t> tokens) {
    if (thinking_) {
      if (tokens.back() == markers_.end) {
        thinking_ = false;
      } else if (tokens.size() > prompt_length_) {
        ++spent_;
      }
      return;
    }
    const auto& start = markers_.start;
    thinking_ =
        tokens.size() >= start.size() && std::equal(start.begin(), start.end(), tokens.end() - std::ssize(start));
  }

  ThinkMarkers markers_;
  int64_t budget_;
  size_t prompt_length_ = 0;
  size_t read_ = 0;  // tokens of the history taken in
  bool thinking_ = false;
  int64_t spent_ = 0;  // generated tokens inside thinking
};

}  // namespace
}  // namespace sampling

std::shared_ptr<LogitsProcessor> force_prefix(const Tokenizer& tokenizer, const std::string& text) {
  text::require_utf8(text, "force_prefix: the text");
  std::vector<int32_t> ids = tokenizer.encode(text, false);
  const std::string written = tokenizer.decode(ids);
  if (written != text) {
    throw_invalid("force_prefix: this tokenizer cannot write \"{}\"; its tokens for it read \"{}\"", text, written);
  }
  return std::make_shared<sampling::ForcePrefix>(std::move(ids));
}

std::shared_ptr<LogitsProcessor> thinking_budget(const Tokenizer& tokenizer, int64_t tokens) {
  if (tokens < 0) throw_invalid("thinking_budget: expected at least 0 tokens, got {}", tokens);
  return std::make_shared<sampling::ThinkingBudget>(sampling::find_markers(tokenizer), tokens);
}

}  // namespace mlxlm
