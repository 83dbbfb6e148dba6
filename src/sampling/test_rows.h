// Rows of log-probabilities for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "sampling/token_filter.h"

namespace mlxlm::sampling {

/// Natural logarithms of the probabilities.
inline std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> row;
  for (const double p : probabilities) row.push_back(static_cast<float>(std::log(p)));
  return row;
}

/// Normally distributed logits; the larger `spread`, the fewer tokens hold the mass. Some values are equal.
inline std::vector<float> random_logits(size_t n, double spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> row(n);
  for (float& x : row) x = static_cast<float>(std::round(normal(random) * 512) / 512);
  return row;
}

/// Log-probabilities of logits, rounded to float.
inline std::vector<float> normalized(std::vector<float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  for (float& x : logits) x = static_cast<float>(static_cast<double>(x) - max - std::log(sum));
  return logits;
}

/// A row with its block maxima. The values must outlive it.
struct TestRow {
  explicit TestRow(std::span<const float> values) {
    for (size_t i = 0; i < values.size(); i += kBlock) {
      const auto block = values.subspan(i, std::min(kBlock, values.size() - i));
      block_max.push_back(*std::max_element(block.begin(), block.end()));
    }
    row = {values, 0, block_max, *std::max_element(values.begin(), values.end())};
  }

  std::vector<float> block_max;
  LogprobRow row;
};

/// The ids that may be drawn, ascending.
inline std::vector<int32_t> survivors(const LogprobRow& row, const SamplerOptions& options, bool xtc = false,
                                      const std::vector<int32_t>& special = {}) {
  TokenFilter filter(options, special);
  filter.apply(row, xtc);
  std::vector<int32_t> ids;
  if (filter.listed()) {
    for (const Candidate& c : filter.candidates()) ids.push_back(c.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  for (size_t i = 0; i < row.values.size(); ++i) {
    const float logprob = row.logprob(i);
    if (std::isfinite(logprob) && !filter.removed(logprob, static_cast<int32_t>(i))) {
      ids.push_back(static_cast<int32_t>(i));
    }
  }
  return ids;
}

}  // namespace mlxlm::sampling
