// Grammar constraints: the logits of tokens that the grammar does not admit become −inf.
#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "base/error.h"
#include "io/json.h"
#include "mlxlm/sampling.h"
#include "text/grammar_bridge.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace mlxlm {
namespace {

using text::GrammarState;

/// A set of ids, 32 in a word.
class TokenMask {
 public:
  void resize(size_t ids) { words_.resize((ids + 31) / 32); }
  size_t ids() const { return words_.size() * 32; }
  std::span<uint32_t> words() { return words_; }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }
  void set(int32_t id, bool admitted) {
    const auto bit = static_cast<size_t>(id);
    const uint32_t one = 1U << bit % 32;
    words_[bit / 32] = admitted ? words_[bit / 32] | one : words_[bit / 32] & ~one;
  }
  bool has(int32_t id) const {
    const auto bit = static_cast<size_t>(id);
    return (words_[bit / 32] >> bit % 32 & 1) != 0;
  }

  /// The id where the set has exactly one.
  std::optional<int32_t> only() const {
    std::optional<int32_t> found;
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == 0) continue;
      if (found || !std::has_single_bit(words_[i])) return std::nullopt;
      found = static_cast<int32_t>(i * 32) + std::countr_zero(words_[i]);
    }
    return found;
  }

  /// −inf for every id outside; false where nothing is left.
  bool apply(std::span<float> logits) const {
    constexpr float kBanned = -std::numeric_limits<float>::infinity();
    bool any = false;
    for (size_t start = 0; start < logits.size(); start += 32) {
      const uint32_t word = start / 32 < words_.size() ? words_[start / 32] : 0;
      const size_t count = std::min<size_t>(32, logits.size() - start);
      if (word == 0) {
        std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(start), count, kBanned);
        continue;
      }
      for (size_t i = 0; i < count; ++i) {
        const bool admitted = (word >> i & 1) != 0;
        any = any || admitted;
        if (!admitted) logits[start + i] = kBanned;
      }
    }
    return any;
  }

 private:
  std::vector<uint32_t> words_;
};

class GrammarProcessor : public LogitsProcessor {
 public:
  GrammarProcessor(Tokenizer tokenizer, std::shared_ptr<const GrammarState> grammar)
      : tokenizer_(std::move(tokenizer)),
        grammar_(std::move(grammar)),
        state_(*grammar_),
        eos_(tokenizer_.eos_token_ids()) {}

  void start(const Start& start) override;
  void process(std::span<const int32_t> tokens, std::span<float> logits) override;
  std::unique_ptr<LogitsProcessor> clone() const override { return std::make_unique<GrammarProcessor>(*this); }
  std::optional<int32_t> forced_token(std::span<const int32_t> tokens) override;
  std::string name() const override { return "the grammar"; }

 private:
  bool continues(std::span<const int32_t> tokens) const;
  void restart(std::span<const int32_t> tokens);
  void advance(std::span<const int32_t> tokens);
  void read(int32_t id);
  void find_mask(std::span<const int32_t> tokens);

  Tokenizer tokenizer_;                          // owns the vocabulary that the states refer to
  std::shared_ptr<const GrammarState> grammar_;  // as compiled: it has read nothing
  GrammarState state_;                           // has read `generated_`
  std::optional<std::vector<int32_t>> prompt_;   // none: start() was not called, nor process()
  std::vector<int32_t> eos_;
  int64_t vocab_size_ = 0;          // of the logits; 0: not known
  std::vector<int32_t> generated_;  // after the prompt
  bool ended_ = false;              // an EOS has been generated
  bool mask_known_ = false;
  TokenMask mask_;  // what may follow `generated_`
};

void GrammarProcessor::start(const Start& start) {
  prompt_.emplace(start.prompt.begin(), start.prompt.end());
  eos_.assign(start.eos_token_ids.begin(), start.eos_token_ids.end());
  vocab_size_ = start.vocab_size;
  restart(*prompt_);
}

bool GrammarProcessor::continues(std::span<const int32_t> tokens) const {
  return tokens.size() >= prompt_->size() + generated_.size() &&
         std::equal(generated_.begin(), generated_.end(), tokens.subspan(prompt_->size()).begin());
}

void GrammarProcessor::restart(std::span<const int32_t> tokens) {
  if (tokens.size() < prompt_->size() || !std::equal(prompt_->begin(), prompt_->end(), tokens.begin())) {
    throw_invalid(
        "grammar: expected the prompt that the request started with ({} tokens) and what was generated after "
        "it, got {} tokens that begin otherwise",
        prompt_->size(), tokens.size());
  }
  state_ = *grammar_;
  generated_.clear();
  ended_ = false;
  mask_known_ = false;
}

void GrammarProcessor::advance(std::span<const int32_t> tokens) {
  if (!prompt_) prompt_.emplace(tokens.begin(), tokens.end());
  if (!continues(tokens)) restart(tokens);
  for (const int32_t id : tokens.subspan(prompt_->size() + generated_.size())) {
    read(id);
    generated_.push_back(id);
    mask_known_ = false;
  }
}

void GrammarProcessor::read(int32_t id) {
  if (std::find(eos_.begin(), eos_.end(), id) != eos_.end()) {
    ended_ = true;
    return;
  }
  try {
    if (ended_) throw_invalid("grammar: the text has ended");
    state_.accept(id);
  } catch (const Error& error) {
    throw_error(error.kind(), "{} (token {}, {}, number {} of what was generated)", error.what(), id,
                tokenizer_.id_to_token(id).value_or("an id outside the vocabulary"), generated_.size() + 1);
  }
}

void GrammarProcessor::find_mask(std::span<const int32_t> tokens) {
  advance(tokens);
  if (mask_known_) return;
  const auto& vocabulary = tokenizer_.impl().grammar_vocabulary();
  const int32_t last_eos = eos_.empty() ? 0 : *std::max_element(eos_.begin(), eos_.end());
  mask_.resize(static_cast<size_t>(std::max(vocabulary.size(), last_eos + 1)));
  bool may_end = ended_;
  if (ended_) {
    mask_.clear();
  } else {
    may_end = state_.mask(mask_.words());
  }
  for (const int32_t id : eos_) {
    // A Lark grammar may also ask for a special token by its name.
    const bool named = id < vocabulary.size() && vocabulary.is_special(id) && mask_.has(id);
    mask_.set(id, may_end || named);
  }
  if (vocab_size_ > 0) {
    for (size_t id = static_cast<size_t>(vocab_size_); id < mask_.ids(); ++id)
      mask_.set(static_cast<int32_t>(id), false);
  }
  mask_known_ = true;
}

void GrammarProcessor::process(std::span<const int32_t> tokens, std::span<float> logits) {
  find_mask(tokens);
  if (!mask_.apply(logits)) {
    throw_error(ErrorKind::unsupported,
                "grammar: after {} generated tokens no token of the vocabulary continues the text, and it may not end "
                "there; expected a vocabulary that can write every byte the grammar asks for",
                generated_.size());
  }
}

std::optional<int32_t> GrammarProcessor::forced_token(std::span<const int32_t> tokens) {
  find_mask(tokens);
  return mask_.only();
}

/// The source as the C ABI wants it.
std::string source_of(const Grammar& grammar, MlxlmGrammarKind& kind) {
  const bool has_source = grammar.kind != Grammar::Kind::json_object && grammar.kind != Grammar::Kind::choice;
  if (!has_source && !grammar.source.empty()) {
    throw_invalid("grammar: source is for schemas, expressions and Lark grammars; this kind has none, got {} bytes",
                  grammar.source.size());
  }
  if (grammar.kind != Grammar::Kind::choice && !grammar.choices.empty()) {
    throw_invalid("grammar: choices are for Grammar::Kind::choice; this kind has none, got {}", grammar.choices.size());
  }
  switch (grammar.kind) {
    case Grammar::Kind::json_schema:
      kind = MLXLM_GRAMMAR_JSON_SCHEMA;
      return grammar.source;
    case Grammar::Kind::json_object:
      kind = MLXLM_GRAMMAR_JSON_SCHEMA;
      return R"({"type": "object"})";
    case Grammar::Kind::regex:
      kind = MLXLM_GRAMMAR_REGEX;
      return grammar.source;
    case Grammar::Kind::lark:
      kind = MLXLM_GRAMMAR_LARK;
      return grammar.source;
    case Grammar::Kind::choice:
      break;
  }
  kind = MLXLM_GRAMMAR_CHOICE;
  for (size_t i = 0; i < grammar.choices.size(); ++i) {
    text::require_utf8(grammar.choices[i], format_text("grammar: choices[{}]", i));
  }
  return io::Json(grammar.choices).dump();
}

}  // namespace

std::shared_ptr<LogitsProcessor> constrain(const Tokenizer& tokenizer, const Grammar& grammar) {
  MlxlmGrammarKind kind = MLXLM_GRAMMAR_CHOICE;
  const std::string source = source_of(grammar, kind);
  auto compiled = std::make_shared<const GrammarState>(tokenizer.impl().grammar_vocabulary(), kind, source);
  return std::make_shared<GrammarProcessor>(tokenizer, std::move(compiled));
}

}  // namespace mlxlm
