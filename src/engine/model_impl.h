// What a Model handle points to.
#pragma once

#include <memory>
#include <vector>

#include "mlxlm/model.h"
#include "nn/executor.h"

namespace mlxlm::engine {

class ModelImpl {
 public:
  ModelImpl(ModelInfo info, std::vector<int32_t> eos, std::unique_ptr<nn::Executor> executor)
      : info_(std::move(info)), eos_(std::move(eos)), executor_(std::move(executor)) {}

  const ModelInfo& info() const { return info_; }
  const std::vector<int32_t>& eos_token_ids() const { return eos_; }
  nn::Executor& executor() { return *executor_; }

 private:
  ModelInfo info_;
  std::vector<int32_t> eos_;  // sorted
  std::unique_ptr<nn::Executor> executor_;
};

}  // namespace mlxlm::engine
