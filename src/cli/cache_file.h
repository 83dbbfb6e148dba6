// Prompt caches as files: what the commands do around them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/settings.h"

namespace mlxlm::cli {

/// Takes from the file's metadata the model where `model` is empty, and the EOS token it was made with. Throws Error
/// where `model` is another than the file's.
void apply_cache_metadata(const std::string& path, std::string& model, std::vector<std::string>& extra_eos_tokens);

/// The cache of the file. Throws Error for settings that say otherwise than the file how keys and values are held.
PromptCache load_cache_file(const std::string& path, const Model& model, const GenerationSettings& settings);

/// What mlx_lm.cache_prompt writes about a model: its name as it was given, and the settings of its tokenizer.
std::map<std::string, std::string> cache_metadata(const std::string& model, const std::string& eos_token);

}  // namespace mlxlm::cli
