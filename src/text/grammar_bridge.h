// Grammars of rust/include/mlxlm_text.h over a tokenizer's own tokens; failures become mlxlm::Error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlxlm_text.h"
#include "text/decode_plan.h"
#include "text/rust_bridge.h"

namespace mlxlm::text {

/// A tokenizer's tokens as the bytes they add to a text, in a trie. Special tokens are no text: a grammar admits them
/// only by name. Immutable; safe to share between threads. Costs about 40 bytes of memory for each byte of vocabulary.
class GrammarVocabulary {
 public:
  /// Throws Error(unsupported) for a decoder whose tokens have no bytes of their own.
  GrammarVocabulary(const HfTokenizer& tokenizer, const DecodePlan& plan);

  const MlxlmGrammarVocabulary* handle() const { return handle_.get(); }
  int32_t size() const { return size_; }  ///< ids of the tokenizer
  bool is_special(int32_t id) const { return special_[static_cast<size_t>(id)] != 0; }

  /// Tokens that add other bytes when they begin a text, as where SentencePiece drops a leading space.
  struct FirstToken {
    int32_t id;    ///< of the tokenizer
    int32_t word;  ///< of the trie: where its bytes as first token stand; −1: it adds none
  };
  std::span<const FirstToken> first_tokens() const { return first_tokens_; }  ///< by id
  int32_t word_count() const { return word_count_; }                          ///< entries of the trie

 private:
  struct Deleter {
    void operator()(MlxlmGrammarVocabulary* handle) const { mlxlm_grammar_vocabulary_free(handle); }
  };
  int32_t size_;
  int32_t word_count_;
  std::vector<uint8_t> special_;  // [size]
  std::vector<FirstToken> first_tokens_;
  std::unique_ptr<MlxlmGrammarVocabulary, Deleter> handle_;
};

/// A grammar and the text it has read so far. Copies are independent, and cost what has been read. A const object may
/// be copied from many threads.
class GrammarState {
 public:
  /// Compiles; throws Error(invalid_value) with the place in the source that is wrong. Keeps a reference to the
  /// vocabulary.
  GrammarState(const GrammarVocabulary& vocabulary, MlxlmGrammarKind kind, std::string_view source);
  GrammarState(const GrammarState& other);
  GrammarState& operator=(const GrammarState& other);
  GrammarState(GrammarState&&) = default;
  GrammarState& operator=(GrammarState&&) = default;

  /// Reads the next token. Throws Error(invalid_value) where the grammar does not admit it.
  void accept(int32_t id);
  /// Sets bit id % 32 of words[id / 32] for every token admitted next and clears the others; true where the text may
  /// end here. words holds at least the vocabulary's ids.
  bool mask(std::span<uint32_t> words);

 private:
  struct Deleter {
    void operator()(MlxlmGrammar* handle) const { mlxlm_grammar_free(handle); }
  };
  using Handle = std::unique_ptr<MlxlmGrammar, Deleter>;
  static Handle clone(const MlxlmGrammar* handle);

  const GrammarVocabulary* vocabulary_;
  Handle handle_;
  bool first_ = true;  // no token so far
};

}  // namespace mlxlm::text
