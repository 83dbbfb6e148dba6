// Prompt caches from files, checked against a model.
#pragma once

#include "engine/cache_file.h"
#include "engine/prompt_cache.h"

namespace mlxlm::engine {

/// A cache with the content of a file. Throws Error naming the layer, what the model expects and what the file has.
LoadedPromptCache make_prompt_cache(const Model& model, CacheFile file);

}  // namespace mlxlm::engine
