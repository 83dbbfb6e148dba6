// What a PromptCache holds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/model_impl.h"
#include "mlxlm/generate.h"

namespace mlxlm {

/// Keys and values for the first kv.length() of `tokens`; the rest are computed when the cache is used next.
struct PromptCache::State {
  std::shared_ptr<engine::ModelImpl> model;  // keeps the pool alive
  nn::KvSequence kv;
  std::vector<int32_t> tokens;
  bool in_use = false;  // by a running stream
};

}  // namespace mlxlm
