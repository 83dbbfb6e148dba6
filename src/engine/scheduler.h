// Requests that run together, one forward pass per step.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/model_impl.h"
#include "engine/sequence.h"

namespace mlxlm::engine {

struct SchedulerOptions {
  int64_t max_running = 1;  ///< the others wait in order of arrival
  int64_t max_prompts = 1;  ///< prompts fed in one pass
  int64_t kv_bytes = 0;     ///< budget for the keys and values of these requests; 0: none of its own
};

/// Continuous batching: prompts are fed in chunks beside the decoding of others. What a sequence gets does not depend
/// on its neighbours. Not thread-safe; several schedulers of one model may run in several threads.
class Scheduler {
 public:
  Scheduler(std::shared_ptr<ModelImpl> model, const SchedulerOptions& options);

  /// Joins at one of the next steps. Throws Error when the request can never fit the budget.
  int64_t add(SequenceRequest request);
  /// Takes a sequence out; its cache holds what has been fed and belongs to its history. False: there is none.
  bool remove(int64_t id);
  bool empty() const { return running_.empty() && waiting_.empty(); }
  Sequence* find(int64_t id);

  /// One forward pass where one is needed, then a token of each sequence that has one, in order of joining. Sequences
  /// that have finished or failed leave at the next step. Throws Error(cancelled) when the caller asked to stop during
  /// the pass; nothing has changed then.
  const std::vector<Emission>& step(const CancelCheck& cancel = {});

  int64_t preemptions() const { return preemptions_; }
  /// Prompt tokens fed by the last step.
  int64_t prompt_tokens_fed() const { return prompt_tokens_fed_; }

 private:
  void drop_finished();
  void admit();
  void plan();
  void plan_prompts(int64_t budget);
  bool plan_one(Sequence& sequence, int64_t budget);
  void make_room();
  void preempt(Sequence* sequence);
  bool fits() const;
  int64_t held_bytes() const;
  void run_pass(const CancelCheck& cancel);
  void emit();

  std::shared_ptr<ModelImpl> model_;
  nn::Executor& executor_;
  const SchedulerOptions options_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of joining
  std::deque<std::unique_ptr<Sequence>> waiting_;
  struct Planned {
    Sequence* sequence;
    nn::Span span;
  };
  std::vector<Planned> planned_;
  std::vector<nn::Span> spans_;
  std::vector<uint64_t> blocks_being_made_;                    // prefix keys of blocks that planned prompts will fill
  RowMemory logits_ = std::make_shared<std::vector<float>>();  // of the last pass, [rows, vocab]
  std::vector<Emission> emissions_;
  std::vector<int64_t> finished_;
  int64_t next_id_ = 0;
  int64_t preemptions_ = 0;
  int64_t prompt_tokens_fed_ = 0;
};

}  // namespace mlxlm::engine
