// Finding stop strings in text that comes in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlxlm::text {

/// Matches several stop strings against a stream. What is given out never holds a stop string nor the beginning of one
/// that may still be completed, and does not depend on how the text was cut. The match that is complete first wins; of
/// those that end together, the one that began first. Cost: O(1) amortised per byte. One object serves one request.
class StopMatcher {
 public:
  /// No stop strings means that everything passes. An empty string throws Error(invalid_value).
  explicit StopMatcher(const std::vector<std::string>& stops);

  /// Adds text and returns what is safe to give out. After a match: what stood before it, then nothing.
  std::string feed(std::string_view text);
  /// The end of the text: returns what was held back as the possible beginning of a stop string.
  std::string flush();

  bool stopped() const { return matched_.has_value(); }
  /// Index of the stop string that matched.
  std::optional<size_t> matched() const { return matched_; }

 private:
  static constexpr int32_t kNone = -1;
  /// A state of the Aho-Corasick automaton: a prefix of a stop string.
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> next;  // trie edges; few, so searched in order
    int32_t fallback = 0;                                 // the longest proper suffix that is a prefix too
    int32_t stop = kNone;                                 // longest stop string that ends here
    size_t depth = 0;                                     // bytes
  };

  void insert(const std::string& stop, size_t index);
  void link();
  int32_t child(int32_t node, unsigned char byte) const;
  int32_t step(int32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::vector<size_t> lengths_;  // bytes of each stop string
  int32_t state_ = 0;
  std::string held_;  // the bytes of `state_`, not yet given out
  std::optional<size_t> matched_;
};

}  // namespace mlxlm::text
