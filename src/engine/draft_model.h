// Guessing with a smaller model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/draft.h"
#include "engine/model_impl.h"
#include "sampling/sampler.h"

namespace mlxlm::engine {

/// Samples from the draft model with the noise that the target will use, so that it guesses the target's own choice
/// wherever the two distributions agree.
class DraftModel : public DraftSource {
 public:
  DraftModel(std::shared_ptr<ModelImpl> draft, int64_t target_vocab, const SamplerOptions& options,
             std::span<const int32_t> xtc_special_tokens, uint64_t seed, double cost_of_a_guess);

  std::vector<int32_t> propose(std::span<const int32_t> history, int64_t max,
                               std::span<const std::shared_ptr<LogitsProcessor>> processors) override;
  double cost_of_a_guess() const override { return cost_; }

 private:
  void catch_up(std::span<const int32_t> history);

  std::shared_ptr<ModelImpl> draft_;
  int64_t vocab_;  // ids that both models have
  sampling::Sampler sampler_;
  double cost_;
  nn::KvSequence kv_;
  std::vector<int32_t> fed_;  // the ids in kv_
  std::vector<float> logits_;
};

}  // namespace mlxlm::engine
