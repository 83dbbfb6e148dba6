// Keeping texts out of what is generated, however they are cut into tokens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mlxlm/tokenizer.h"

namespace mlxlm::sampling {

/// For every part of a forbidden text that may have been written already, the tokens that would complete it. Immutable;
/// made with one pass over the vocabulary.
class ForbiddenStrings {
 public:
  /// Throws Error(invalid_value) for a text that is empty, not UTF-8 or holds U+FFFD, and Error(unsupported) for a
  /// decoder whose tokens have no bytes of their own.
  ForbiddenStrings(const Tokenizer& tokenizer, std::vector<std::string> texts);

  /// How much of each forbidden text the generated text ends with: the longest proper part. [texts] bytes.
  using Progress = std::vector<size_t>;
  Progress none() const { return Progress(texts_.size(), 0); }
  /// Adds a token to the text; `first`: none came before. False for an id without text (padding of the vocabulary).
  bool advance(Progress& progress, int32_t id, bool first) const;
  /// Calls with each list of tokens that would complete a forbidden text now.
  template <typename F>
  void each_ban(const Progress& progress, bool first, const F& call) const {
    call(std::span<const int32_t>(first ? inside_first_ : inside_));
    for (size_t t = 0; t < texts_.size(); ++t) {
      for (size_t n = progress[t]; n > 0; n = shorter_[t][n]) call(std::span<const int32_t>(completing_[t][n]));
    }
  }

 private:
  /// Where in the texts a token may go on: text t after its first n bytes.
  struct Place {
    size_t text;
    size_t length;
  };

  void link();
  void scan_vocabulary();
  bool holds_text(std::string_view bytes) const;

  Tokenizer tokenizer_;
  std::vector<std::string> texts_;
  /// [texts][n]: the next shorter part of the text with which its first n bytes end; the failure function of Knuth,
  /// Morris and Pratt.
  std::vector<std::vector<size_t>> shorter_;
  std::array<std::vector<Place>, 256> places_;  ///< by the byte that follows
  std::vector<int32_t> inside_;                 ///< tokens with a whole forbidden text
  std::vector<int32_t> inside_first_;           ///< the same where the token begins the text
  /// [texts][n]: tokens that begin with all that follows the first n bytes of the text.
  std::vector<std::vector<std::vector<int32_t>>> completing_;
};

}  // namespace mlxlm::sampling
