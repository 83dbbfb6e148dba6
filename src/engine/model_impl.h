// What a Model handle points to.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/prefix_cache.h"
#include "mlxlm/model.h"
#include "nn/executor.h"

namespace mlxlm::engine {

class ModelImpl {
 public:
  /// eos: sorted. prefix_bytes: budget of the keys and values kept for later requests.
  ModelImpl(ModelInfo info, Tokenizer tokenizer, std::vector<int32_t> eos, std::unique_ptr<nn::Executor> executor,
            int64_t prefix_bytes)
      : info_(std::move(info)),
        tokenizer_(std::move(tokenizer)),
        eos_(std::move(eos)),
        executor_(std::move(executor)),
        prefix_cache_(executor_->shared_kv_pool(), prefix_bytes) {}

  const ModelInfo& info() const { return info_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::vector<int32_t>& eos_token_ids() const { return eos_; }
  nn::Executor& executor() { return *executor_; }
  PrefixCache& prefix_cache() { return prefix_cache_; }
  /// Throws Error(invalid_value) unless `draft` has this model's vocabulary (the same strings for the same ids, rows of
  /// padding aside). A pair of models is compared once.
  void check_draft(const std::shared_ptr<ModelImpl>& draft);

 private:
  ModelInfo info_;
  Tokenizer tokenizer_;
  std::vector<int32_t> eos_;
  std::unique_ptr<nn::Executor> executor_;
  PrefixCache prefix_cache_;
  std::mutex drafts_mutex_;                       // guards what follows
  std::vector<std::weak_ptr<ModelImpl>> drafts_;  // found to have the same vocabulary
};

}  // namespace mlxlm::engine
