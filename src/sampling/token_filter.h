// Which tokens may be drawn: top_p, min_p, XTC and top_k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "mlxlm/sampling.h"

namespace mlxlm::sampling {

/// Tokens that share an entry of LogprobRow::block_max: long enough that the maxima are few, short enough that looking
/// through a block that holds one candidate costs little.
inline constexpr size_t kBlock = 64;

/// Log-probabilities [vocab]: values[i] − shift, rounded to float. At least one is finite, none is NaN or +inf.
struct LogprobRow {
  std::span<const float> values;
  float shift = 0;
  std::span<const float> block_max;  ///< the largest of each kBlock values
  float max = 0;                     ///< the largest log-probability

  float logprob(size_t i) const { return values[i] - shift; }
};

struct Candidate {
  float logprob;
  int32_t id;
  uint64_t mass;  ///< see probability_mass.h; set where a filter sums
};

/// The filters of one request. Each compares with the full distribution, in the order top_p, min_p, XTC, top_k; XTC
/// alone renormalises what is left to find the tokens above its threshold. Every token as likely as the least likely
/// one that top_p admits stays too; where top_k and min_tokens_to_keep must choose among equals, the lower ids stay. No
/// full sort, and no allocation once the buffer has its size.
class TokenFilter {
 public:
  /// The options must have passed check_sampler_options.
  explicit TokenFilter(const SamplerOptions& options, std::span<const int32_t> xtc_special_tokens = {});

  /// Finds the survivors; there is always one. xtc: whether the draw for this position lets XTC act.
  void apply(const LogprobRow& row, bool xtc);

  /// Whether the survivors are candidates(); else they are all tokens of the row but those that are removed().
  bool listed() const { return listed_; }
  std::span<const Candidate> candidates() const { return {buffer_.data(), count_}; }  ///< in no order
  bool removed(float logprob, int32_t id) const { return logprob > removed_above_ && !is_special(id); }

 private:
  bool is_special(int32_t id) const;
  void restart();
  void gather(const LogprobRow& row, float floor, float ceiling);
  bool gather_next_band(const LogprobRow& row);
  void gather_most_likely(const LogprobRow& row, size_t k);
  void keep_most_likely(size_t k);
  void keep_top_p(const LogprobRow& row);
  void keep_nucleus(size_t first, uint64_t target);
  float least_of_nucleus(std::span<const Candidate> range, uint64_t target);
  std::span<const Candidate> copy_bucket(std::span<const Candidate> range, uint32_t low, int shift, uint32_t bucket);
  void keep_min_p(const LogprobRow& row);
  void remove_top_choices(const LogprobRow& row);
  float least_above_threshold();

  SamplerOptions options_;
  std::vector<int32_t> special_;  // sorted
  float min_p_depth_ = 0;         // log(min_p)
  std::vector<Candidate> buffer_, scratch_;
  size_t count_ = 0;  // candidates in it
  bool listed_ = false;
  float removed_above_ = std::numeric_limits<float>::infinity();
  size_t band_ = 0;  // bands gathered so far
  float band_floor_ = 0;
};

}  // namespace mlxlm::sampling
