// Guessing the next tokens, and how many to guess.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "mlxlm/sampling.h"

namespace mlxlm::engine {

/// The most tokens guessed at once: fewer than a window lets be taken back (KvSequence keeps 64 positions behind it).
inline constexpr int64_t kMaxDraftTokens = 48;

/// Guesses what comes next. Never changes what is generated: a guess counts only where the model itself chooses it.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  /// At most `max` ids that may follow the history. `processors` are the request's own, not to be called: their clones
  /// may.
  virtual std::vector<int32_t> propose(std::span<const int32_t> history, int64_t max,
                                       std::span<const std::shared_ptr<LogitsProcessor>> processors) = 0;
  /// Fewer tokens than this are not worth a round.
  virtual double cost_of_a_guess() const = 0;
};

/// Guesses that what followed the last few tokens earlier in the history follows again.
class PromptLookup : public DraftSource {
 public:
  std::vector<int32_t> propose(std::span<const int32_t> history, int64_t max,
                               std::span<const std::shared_ptr<LogitsProcessor>> processors) override;
  double cost_of_a_guess() const override { return 0; }

 private:
  void index(std::span<const int32_t> history);
  int64_t continuation(std::span<const int32_t> history) const;

  // By n-gram, the position after its last and its last but one occurrence (the newest ends the history itself).
  struct Ends {
    int64_t last = -1;
    int64_t before = -1;
  };
  std::unordered_map<uint64_t, Ends> ends_;
  int64_t indexed_ = 0;  // tokens of the history in ends_
};

/// How many tokens to guess: as many as pay, judging by how often guesses were right lately.
class DraftLength {
 public:
  /// cost_of_a_guess: what making one guess costs, as a share of a decode step of the model itself.
  DraftLength(int64_t most, double cost_of_a_guess) : most_(most), cost_(cost_of_a_guess) {}

  /// Tokens to guess in this round; 0: decode plainly.
  int64_t next();
  void record(int64_t proposed, int64_t accepted);

 private:
  int64_t most_;
  double cost_;
  // Recent guesses that were right and that were judged, older ones counting less; the start is a friendly guess.
  double right_ = 1.5;
  double judged_ = 2;
  int64_t rounds_until_try_ = 0;  // plain steps before the next attempt while guesses do not pay
  int64_t pause_ = 4;             // the length of the next such pause
};

}  // namespace mlxlm::engine
