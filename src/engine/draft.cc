#include "engine/draft.h"

#include <algorithm>
#include <array>

namespace mlxlm::engine {
namespace {

// Lengths of the n-grams looked up, longest first: long matches are right more often.
constexpr std::array<int64_t, 2> kLookupLengths = {4, 2};

// What one more token costs in a pass that reads the weights anyway, as a share of the pass: measured on the demo
// model (see docs/performance.md).
constexpr double kCostOfAToken = 0.2;

// Old evidence fades with every round, and counts for at most so many guesses: a change is noticed soon.
constexpr double kFade = 0.8;
constexpr double kMostEvidence = 8;

constexpr int64_t kLongestPause = 64;

uint64_t hash_tokens(std::span<const int32_t> tokens) {
  uint64_t hash = 0xcbf29ce484222325u ^ tokens.size();
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

void PromptLookup::index(std::span<const int32_t> history) {
  const auto size = static_cast<int64_t>(history.size());
  if (size < indexed_) {  // another history
    ends_.clear();
    indexed_ = 0;
  }
  for (; indexed_ < size; ++indexed_) {
    const int64_t end = indexed_ + 1;
    for (const int64_t n : kLookupLengths) {
      if (end < n) continue;
      Ends& ends = ends_[hash_tokens(history.subspan(static_cast<size_t>(end - n), static_cast<size_t>(n)))];
      ends.before = ends.last;
      ends.last = end;
    }
  }
}

// Where the history went on after the last occurrence of its own end; −1: nowhere. Hashes may collide: the tokens are
// compared.
int64_t PromptLookup::continuation(std::span<const int32_t> history) const {
  const auto size = static_cast<int64_t>(history.size());
  for (const int64_t n : kLookupLengths) {
    if (size < n) continue;
    const auto tail = history.last(static_cast<size_t>(n));
    const auto found = ends_.find(hash_tokens(tail));
    if (found == ends_.end()) continue;
    const int64_t end = found->second.last == size ? found->second.before : found->second.last;
    if (end < n) continue;
    if (std::ranges::equal(history.subspan(static_cast<size_t>(end - n), static_cast<size_t>(n)), tail)) return end;
  }
  return -1;
}

std::vector<int32_t> PromptLookup::propose(std::span<const int32_t> history, int64_t max,
                                           std::span<const std::shared_ptr<LogitsProcessor>> /*processors*/) {
  index(history);
  const int64_t from = continuation(history);
  if (from < 0) return {};
  const int64_t n = std::min(max, static_cast<int64_t>(history.size()) - from);
  const auto guess = history.subspan(static_cast<size_t>(from), static_cast<size_t>(n));
  return {guess.begin(), guess.end()};
}

int64_t DraftLength::next() {
  if (rounds_until_try_ > 0) {
    --rounds_until_try_;
    return 0;
  }
  // k guesses, each right with probability p, give (1 − p^(k+1)) / (1 − p) tokens for 1 + k · (their cost) of a step.
  const double p = std::min(right_ / judged_, 0.99);
  double tokens = 1, chance = 1, best_rate = 1;
  int64_t best = 0;
  for (int64_t k = 1; k <= most_; ++k) {
    chance *= p;
    tokens += chance;
    const double rate = tokens / (1 + static_cast<double>(k) * std::max(0.0, kCostOfAToken + cost_));
    if (rate > best_rate) {
      best_rate = rate;
      best = k;
    }
  }
  if (best == 0) {  // try again now and then: the text may have changed
    rounds_until_try_ = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return std::min<int64_t>(most_, 1);
  }
  return best;
}

void DraftLength::record(int64_t proposed, int64_t accepted) {
  if (proposed == 0) return;
  const double keep = kFade * std::min(1.0, kMostEvidence / judged_);
  right_ = right_ * keep + static_cast<double>(accepted);
  judged_ = judged_ * keep + static_cast<double>(std::min(proposed, accepted + 1));
  if (accepted == proposed) {
    pause_ = 4;
    rounds_until_try_ = 0;
  }
}

}  // namespace mlxlm::engine
