// Sequences that are fed and decoded together, one forward pass per step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "nn/executor.h"
#include "sampling/sampler.h"

namespace mlxlm::engine {

/// What a sequence of a batch brings.
struct SequenceRequest {
  nn::KvSequence* kv = nullptr;  ///< where it continues; must outlive its stay in the batch
  std::vector<int32_t> tokens;   ///< not yet in kv; not empty
  SamplerOptions sampler{};      ///< checked with check_sampler_options
  uint64_t seed = 0;
  int64_t prefill_step_size = 2048;                                    ///< tokens of one sequence in one pass
  std::function<void(int64_t done, int64_t total)> prompt_progress{};  ///< over `tokens`; may be empty
};

/// Continuous batching: prompts are fed in chunks beside the decoding of others. A sequence's tokens do not depend on
/// its neighbours. Not thread-safe.
class Batch {
 public:
  using Id = int64_t;

  explicit Batch(nn::Executor& executor) : executor_(executor) {}

  /// Joins at the next step.
  Id add(SequenceRequest request);
  /// Leaves the batch; its keys and values hold the tokens fed so far.
  void remove(Id id);
  bool empty() const { return slots_.empty(); }

  struct Result {
    Id id = 0;
    sampling::Choice choice;
    float log_normalizer = 0;
    std::span<const float> logits;  ///< [vocab], valid until the next step
  };
  /// One forward pass over all sequences: the next chunk of those with tokens left, the newest token of the others.
  /// Returns a sampled token for each sequence whose tokens are all fed, in order of joining; it is fed by the next
  /// step.
  std::vector<Result> step();

 private:
  struct Slot {
    Id id;
    SequenceRequest request;
    sampling::Sampler sampler;
    size_t fed = 0;         // of request.tokens
    bool in_prompt = true;  // false once a token has been sampled
  };

  nn::Executor& executor_;
  std::vector<Slot> slots_;
  std::vector<float> logits_;
  Id next_id_ = 0;
};

}  // namespace mlxlm::engine
