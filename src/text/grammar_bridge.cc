#include "text/grammar_bridge.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "text/rust_values.h"

namespace mlxlm::text {
namespace {

/// The tokens' bytes, one after the other, as the C ABI wants them.
struct Words {
  std::string bytes;
  std::vector<size_t> ends;
  std::vector<uint8_t> special;

  void add(std::string_view word, bool is_special) {
    bytes += word;
    ends.push_back(bytes.size());
    special.push_back(is_special);
  }
  std::string_view at(size_t word) const {
    const size_t start = word == 0 ? 0 : ends[word - 1];
    return std::string_view(bytes).substr(start, ends[word] - start);
  }
};

Words read_words(const HfTokenizer& tokenizer, const DecodePlan& plan) {
  Words words;
  std::string piece;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.id_to_token(id, piece)) piece.clear();  // a hole between the ids
    const bool special = tokenizer.is_special(id);
    words.add(special || piece.empty() ? piece : token_bytes(plan, piece, false), special);
  }
  return words;
}

/// Whether a token's bytes depend on where it stands.
bool first_differs(const DecodePlan& plan) {
  const auto drops = [](const DecodePlan::Step& step) { return step.drop_in_first; };
  return plan.strip_left > 0 || !plan.separator.empty() || std::any_of(plan.steps.begin(), plan.steps.end(), drops);
}

/// Gives each token with other bytes at the start of a text a word of the trie with these bytes: another token's, or a
/// new one.
std::vector<GrammarVocabulary::FirstToken> add_first_words(const HfTokenizer& tokenizer, const DecodePlan& plan,
                                                           Words& words) {
  std::vector<GrammarVocabulary::FirstToken> result;
  if (!first_differs(plan)) return result;
  const size_t size = words.ends.size();
  std::unordered_map<std::string, int32_t> word_of;
  for (size_t word = 0; word < size; ++word) {
    if (!words.special[word]) word_of.emplace(words.at(word), static_cast<int32_t>(word));
  }
  std::string piece;
  for (int32_t id = 0; id < static_cast<int32_t>(size); ++id) {
    if (words.special[static_cast<size_t>(id)] || !tokenizer.id_to_token(id, piece)) continue;
    const std::string bytes = token_bytes(plan, piece, true);
    if (bytes == words.at(static_cast<size_t>(id))) continue;
    if (bytes.empty()) {
      result.push_back({id, -1});
      continue;
    }
    const auto [found, is_new] = word_of.emplace(bytes, static_cast<int32_t>(words.ends.size()));
    if (is_new) words.add(bytes, false);
    result.push_back({id, found->second});
  }
  return result;
}

/// Whether the tokenizer adds nothing to a text and takes nothing away, so that what it makes of a part of a text can
/// stand for that part.
bool encodes_as_is(const HfTokenizer& tokenizer, const Words& words) {
  constexpr std::string_view kProbes[] = {"a", " a", "Name ", "{\"name\": [1, true]}", "\n\n  x", "\u00e9"};
  return std::all_of(std::begin(kProbes), std::end(kProbes), [&](std::string_view probe) {
    std::string text;
    for (const int32_t id : tokenizer.encode(probe, false)) text += words.at(static_cast<size_t>(id));
    return text == probe;
  });
}

const char* place_of(MlxlmGrammarKind kind) {
  switch (kind) {
    case MLXLM_GRAMMAR_JSON_SCHEMA:
      return "the JSON schema";
    case MLXLM_GRAMMAR_REGEX:
      return "the regular expression";
    case MLXLM_GRAMMAR_LARK:
      return "the Lark grammar";
    case MLXLM_GRAMMAR_CHOICE:
      break;
  }
  return "the choices";
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(const HfTokenizer& tokenizer, const DecodePlan& plan)
    : size_(tokenizer.vocab_size()) {
  if (plan.kind == DecodePlan::Kind::whole) {
    throw_error(ErrorKind::unsupported,
                "{}: grammars need a decoder that gives each token bytes of its own (byte-level BPE, SentencePiece), "
                "got {}",
                tokenizer.where(), tokenizer.decoder_json());
  }
  Words words = read_words(tokenizer, plan);
  special_ = words.special;
  first_tokens_ = add_first_words(tokenizer, plan, words);
  word_count_ = static_cast<int32_t>(words.ends.size());
  const MlxlmTokenizer* forcing =
      first_tokens_.empty() && encodes_as_is(tokenizer, words) ? tokenizer.handle() : nullptr;
  RustString error;
  MlxlmGrammarVocabulary* handle = nullptr;
  check_rust(mlxlm_grammar_vocabulary_new(words.bytes.data(), words.ends.data(), words.special.data(),
                                          words.ends.size(), forcing, &handle, &error),
             error, tokenizer.where(), "preparing the tokens for grammars");
  handle_.reset(handle);
}

GrammarState::GrammarState(const GrammarVocabulary& vocabulary, MlxlmGrammarKind kind, std::string_view source)
    : vocabulary_(&vocabulary) {
  RustString error;
  MlxlmGrammar* handle = nullptr;
  check_rust(mlxlm_grammar_new(vocabulary.handle(), kind, source.data(), source.size(), &handle, &error), error,
             "grammar", place_of(kind));
  handle_.reset(handle);
}

GrammarState::Handle GrammarState::clone(const MlxlmGrammar* handle) {
  RustString error;
  MlxlmGrammar* copy = nullptr;
  check_rust(mlxlm_grammar_clone(handle, &copy, &error), error, "grammar", "copying its state");
  return Handle(copy);
}

GrammarState::GrammarState(const GrammarState& other)
    : vocabulary_(other.vocabulary_), handle_(clone(other.handle_.get())), first_(other.first_) {}

GrammarState& GrammarState::operator=(const GrammarState& other) {
  if (this != &other) *this = GrammarState(other);
  return *this;
}

void GrammarState::accept(int32_t id) {
  int32_t word = id;
  if (first_) {
    const auto firsts = vocabulary_->first_tokens();
    const auto found = std::lower_bound(firsts.begin(), firsts.end(), id,
                                        [](const auto& first, int32_t wanted) { return first.id < wanted; });
    if (found != firsts.end() && found->id == id) word = found->word;
  }
  if (id < 0 || id >= vocabulary_->size() || word < 0) {
    throw_invalid("grammar: the token does not continue the text");
  }
  RustString error;
  check_rust(mlxlm_grammar_accept(handle_.get(), static_cast<uint32_t>(word), &error), error, "grammar",
             "reading the text");
  first_ = false;
}

bool GrammarState::mask(std::span<uint32_t> words) {
  const size_t n_words = (static_cast<size_t>(vocabulary_->word_count()) + 31) / 32;
  const bool via_firsts = first_ && !vocabulary_->first_tokens().empty();
  std::vector<uint32_t> all;  // the trie's words: more than the tokens
  if (via_firsts) all.resize(n_words);
  const std::span<uint32_t> target = via_firsts ? std::span<uint32_t>(all) : words;
  int32_t may_end = 0;
  RustString error;
  check_rust(mlxlm_grammar_mask(handle_.get(), target.data(), target.size(), &may_end, &error), error, "grammar",
             "finding the next tokens");
  const auto size = static_cast<size_t>(vocabulary_->size());
  if (via_firsts) {
    std::fill(words.begin(), words.end(), 0);
    std::copy_n(all.begin(), (size + 31) / 32, words.begin());
    for (const auto& first : vocabulary_->first_tokens()) {
      const auto id = static_cast<uint32_t>(first.id);
      const auto word = static_cast<uint32_t>(std::max(first.word, 0));
      const uint32_t bit = first.word < 0 ? 0 : all[word / 32] >> (word % 32) & 1;
      words[id / 32] = (words[id / 32] & ~(1U << id % 32)) | bit << id % 32;
    }
  }
  // Words that only first tokens use are no tokens.
  if (size % 32 != 0) words[size / 32] &= (1U << size % 32) - 1;
  for (size_t i = (size + 31) / 32; i < words.size(); ++i) words[i] = 0;
  return may_end != 0;
}

}  // namespace mlxlm::text
