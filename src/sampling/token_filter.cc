#include "sampling/token_filter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/scalar_math.h"
#include "sampling/probability_mass.h"

namespace mlxlm::sampling {
namespace {

// How far below the most likely token each band of candidates ends, in log-probability. The first three hold what
// filters usually keep (a band down to depth d holds at most e^d tokens); the others are for flat distributions, the
// last for what is left: beyond e^-30 nothing adds to a sum that matters.
constexpr float kBandDepths[] = {3, 6, 9, 12, 18, 30};
constexpr size_t kBands = std::size(kBandDepths) + 1;
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.id < b.id);
}

// A nucleus is narrowed down by sums over 2^kBucketBits buckets (8 KB) until so few candidates are left that sorting
// them costs no more than another round.
constexpr int kBucketBits = 10;
constexpr size_t kFewCandidates = 64;

/// A number that grows as the log-probability falls; its upper bits make a coarser scale. (Rounding may leave a token
/// of probability 1 above 0.)
uint32_t improbability(const Candidate& c) { return c.logprob < 0 ? std::bit_cast<uint32_t>(-c.logprob) : 0; }

bool below_one(float p) { return p > 0 && p < 1; }

}  // namespace

TokenFilter::TokenFilter(const SamplerOptions& options, std::span<const int32_t> xtc_special_tokens)
    : options_(options), special_(xtc_special_tokens.begin(), xtc_special_tokens.end()) {
  if (options.min_p > 0) min_p_depth_ = static_cast<float>(fixed_log(static_cast<double>(options.min_p)));
  std::sort(special_.begin(), special_.end());
}

void TokenFilter::apply(const LogprobRow& row, bool xtc) {
  restart();
  listed_ = false;
  removed_above_ = kInfinity;
  if (below_one(options_.top_p)) keep_top_p(row);
  if (options_.min_p > 0) keep_min_p(row);
  if (xtc) remove_top_choices(row);
  if (options_.top_k > 0) {
    const auto k = static_cast<size_t>(options_.top_k);
    if (!listed_) gather_most_likely(row, k);
    keep_most_likely(k);
  }
}

bool TokenFilter::is_special(int32_t id) const { return std::binary_search(special_.begin(), special_.end(), id); }

void TokenFilter::restart() {
  count_ = 0;
  band_ = 0;
  band_floor_ = kInfinity;
}

/// Adds the tokens with floor ≤ logprob < ceiling.
void TokenFilter::gather(const LogprobRow& row, float floor, float ceiling) {
  size_t count = count_;
  for (size_t block = 0; block < row.block_max.size(); ++block) {
    if (!(row.block_max[block] - row.shift >= floor)) continue;
    if (buffer_.size() < count + kBlock) buffer_.resize(2 * buffer_.size() + kBlock);
    Candidate* const candidates = buffer_.data();
    const size_t end = std::min((block + 1) * kBlock, row.values.size());
    // Without a branch: each token is written, and the next overwrites it unless it counts.
    for (size_t i = block * kBlock; i < end; ++i) {
      const float logprob = row.logprob(i);
      candidates[count].logprob = logprob;
      candidates[count].id = static_cast<int32_t>(i);
      count += static_cast<size_t>(static_cast<int>(logprob >= floor) & static_cast<int>(logprob < ceiling));
    }
  }
  count_ = count;
}

/// False when the row has no more.
bool TokenFilter::gather_next_band(const LogprobRow& row) {
  if (band_ == kBands) return false;
  const float floor = band_ + 1 < kBands ? row.max - kBandDepths[band_] : kLowest;
  gather(row, floor, band_floor_);
  band_floor_ = floor;
  ++band_;
  return true;
}

/// Lists the k most likely that XTC has not removed, and possibly more.
void TokenFilter::gather_most_likely(const LogprobRow& row, size_t k) {
  restart();
  listed_ = true;
  size_t survivors = 0;
  for (size_t seen = 0; survivors < k && gather_next_band(row); seen = survivors) {
    const auto end = std::remove_if(buffer_.begin() + static_cast<std::ptrdiff_t>(seen),
                                    buffer_.begin() + static_cast<std::ptrdiff_t>(count_),
                                    [&](const Candidate& c) { return removed(c.logprob, c.id); });
    survivors = count_ = static_cast<size_t>(end - buffer_.begin());
  }
}

void TokenFilter::keep_most_likely(size_t k) {
  if (count_ <= k) return;
  const auto first = buffer_.begin();
  std::nth_element(first, first + static_cast<std::ptrdiff_t>(k), first + static_cast<std::ptrdiff_t>(count_),
                   more_likely);
  count_ = k;
}

/// Keeps a token while the mass of the more likely ones is below top_p.
void TokenFilter::keep_top_p(const LogprobRow& row) {
  listed_ = true;
  const double exact = static_cast<double>(options_.top_p) * static_cast<double>(kWholeMass);
  uint64_t target = std::max<uint64_t>(1, static_cast<uint64_t>(exact));
  for (size_t first = 0; gather_next_band(row); first = count_) {
    uint64_t mass = 0;
    for (size_t i = first; i < count_; ++i) mass += buffer_[i].mass = mass_of(buffer_[i].logprob);
    if (mass >= target) return keep_nucleus(first, target);
    target -= mass;
  }
  // The log-probabilities' rounding leaves their mass just below top_p: every token counts.
}

/// Of the candidates from `first` on, whose mass is at least `target`, keeps the most likely that together reach it.
void TokenFilter::keep_nucleus(size_t first, uint64_t target) {
  const float least = least_of_nucleus(std::span(buffer_).subspan(first, count_ - first), target);
  Candidate* const candidates = buffer_.data();
  size_t count = first;
  for (size_t i = first; i < count_; ++i) {
    candidates[count] = candidates[i];
    count += static_cast<size_t>(candidates[i].logprob >= least);
  }
  count_ = count;
}

/// The log-probability of the least likely candidate that is needed to reach the target.
float TokenFilter::least_of_nucleus(std::span<const Candidate> range, uint64_t target) {
  while (range.size() > kFewCandidates) {
    uint32_t low = ~uint32_t{0}, high = 0;
    for (const Candidate& c : range) {
      low = std::min(low, improbability(c));
      high = std::max(high, improbability(c));
    }
    if (low == high) return range.front().logprob;  // all are equal
    const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kBucketBits);
    std::array<uint64_t, size_t{1} << kBucketBits> masses{};
    for (const Candidate& c : range) masses[(improbability(c) - low) >> shift] += c.mass;
    uint32_t bucket = 0;  // the one in which the target is reached
    while (masses[bucket] < target) target -= masses[bucket++];
    range = copy_bucket(range, low, shift, bucket);
  }
  std::array<Candidate, kFewCandidates> few;
  std::sort(few.begin(), std::copy(range.begin(), range.end(), few.begin()), more_likely);
  const Candidate* last = few.data();
  for (; last->mass < target; ++last) target -= last->mass;
  return last->logprob;
}

/// The candidates of one bucket, in scratch_; `range` may be part of it.
std::span<const Candidate> TokenFilter::copy_bucket(std::span<const Candidate> range, uint32_t low, int shift,
                                                    uint32_t bucket) {
  if (scratch_.size() <= range.size()) scratch_.resize(range.size() + 1);
  size_t count = 0;
  for (const Candidate& c : range) {  // without a branch: as in gather()
    const bool inside = (improbability(c) - low) >> shift == bucket;
    scratch_[count] = c;
    count += static_cast<size_t>(inside);
  }
  return {scratch_.data(), count};
}

void TokenFilter::keep_min_p(const LogprobRow& row) {
  const float limit = row.max + min_p_depth_;
  const auto keep = static_cast<size_t>(options_.min_tokens_to_keep);
  if (!listed_) {
    listed_ = true;
    gather(row, limit, kInfinity);
    if (count_ < keep) {
      gather_most_likely(row, keep);
      keep_most_likely(keep);
    }
    return;
  }
  const auto begin = buffer_.begin(), end = begin + static_cast<std::ptrdiff_t>(count_);
  const auto likely = [=](const Candidate& c) { return c.logprob >= limit; };
  const auto likely_end = std::partition(begin, end, likely);
  const auto likely_count = static_cast<size_t>(likely_end - begin);
  if (likely_count >= keep) {
    count_ = likely_count;
  } else {
    keep_most_likely(keep);
  }
}

/// XTC, "exclude top choices": of the tokens above the threshold only the least likely stays, and the special ones.
void TokenFilter::remove_top_choices(const LogprobRow& row) {
  if (listed_) {
    removed_above_ = least_above_threshold();
    const auto end = std::remove_if(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(count_),
                                    [&](const Candidate& c) { return removed(c.logprob, c.id); });
    count_ = static_cast<size_t>(end - buffer_.begin());
    return;
  }
  // All tokens are left, so probabilities need no renormalising, and the few above the threshold are all that counts.
  const double floor = fixed_log(static_cast<double>(options_.xtc_threshold)) - 0.001;  // more than any rounding
  gather(row, static_cast<float>(floor), kInfinity);
  removed_above_ = least_above_threshold();
}

/// The lowest log-probability of a candidate whose share exceeds xtc_threshold; +inf where none does.
float TokenFilter::least_above_threshold() {
  uint64_t total = 0;
  for (size_t i = 0; i < count_; ++i) total += buffer_[i].mass = mass_of(buffer_[i].logprob);
  if (!listed_) total = kWholeMass;
  const double limit = static_cast<double>(options_.xtc_threshold) * static_cast<double>(total);
  float least = kInfinity;
  for (size_t i = 0; i < count_; ++i) {
    if (static_cast<double>(buffer_[i].mass) > limit) least = std::min(least, buffer_[i].logprob);
  }
  return least;
}

}  // namespace mlxlm::sampling
