// What GenerateOptions mean for the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "mlxlm/generate.h"

namespace mlxlm::engine {

/// The ids of a prompt. Text gets the tokenizer's special tokens, unless it already starts with its BOS.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const Prompt& prompt);

/// The ids that end a generation with these options, sorted.
std::vector<int32_t> eos_token_ids(const Model& model, const GenerateOptions& options);

/// Throws Error naming the option that is wrong, what was expected and what was got.
void check_generate_options(const Model& model, const std::vector<int32_t>& prompt, const GenerateOptions& options);

/// The request of checked options that continues `cache`, to whose ids the prompt has been added.
SequenceRequest make_request(const Model& model, const GenerateOptions& options, uint64_t seed,
                             PromptCache::State& cache);

}  // namespace mlxlm::engine
