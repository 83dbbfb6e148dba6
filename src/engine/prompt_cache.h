// What a PromptCache holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model_impl.h"
#include "mlxlm/prompt_cache.h"

namespace mlxlm {

/// Keys and values for the first kv.length() positions; those of the rest are computed when the cache is used next.
struct PromptCache::State {
  std::shared_ptr<engine::ModelImpl> model;  // keeps the pool alive
  nn::KvSequence kv;
  PromptCacheOptions options;
  std::vector<int32_t> tokens;  // the ids at positions [start, start + tokens.size()), fed or still to be fed
  // Positions whose ids are not known: above 0 only after loading a file of mlx-lm's, and at most kv.length().
  int64_t start = 0;
  bool in_use = false;  // by a running stream

  /// The same content, sharing the blocks; keys and values beyond the ids (of guesses not yet judged) left out.
  State copy() const;
  int64_t size() const { return start + static_cast<int64_t>(tokens.size()); }
  /// The ids whose keys and values are still to be computed.
  std::span<const int32_t> pending() const {
    return std::span(tokens).subspan(static_cast<size_t>(kv.length() - start));
  }
};

}  // namespace mlxlm
