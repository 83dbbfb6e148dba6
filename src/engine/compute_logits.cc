// compute_logits: tokens in, the logits after each of them out.
#include <algorithm>

#include "base/cancel.h"
#include "base/error.h"
#include "engine/prompt_cache.h"
#include "sampling/sampler.h"

namespace mlxlm {
namespace {

// Tokens in one forward pass: large enough to be efficient, small enough that the rows of a pass are few megabytes.
constexpr size_t kTokensAPass = 512;

void check(const Model& model, std::span<const int32_t> tokens, const PromptCache::State& cache) {
  if (tokens.empty()) throw_invalid("compute_logits: expected at least one token, got none");
  sampling::check_token_ids(tokens, "tokens", model.info().vocab_size);
  if (cache.model != model.shared_impl()) throw_invalid("compute_logits: the cache was made for another model");
  if (cache.in_use) throw_invalid("compute_logits: a generation is using this cache; finish or destroy it first");
}

}  // namespace

std::vector<float> compute_logits(const Model& model, std::span<const int32_t> tokens, PromptCache& cache,
                                  const std::function<bool()>& interrupted) {
  PromptCache::State& state = cache.state();
  check(model, tokens, state);
  const CancelCheck cancel({}, &interrupted);
  const int64_t before = state.size();
  state.tokens.insert(state.tokens.end(), tokens.begin(), tokens.end());
  std::vector<float> logits, rows;
  logits.reserve(tokens.size() * static_cast<size_t>(model.info().vocab_size));
  try {
    for (auto pending = state.pending(); !pending.empty(); pending = state.pending()) {
      // Ids of earlier calls first: nobody asked for their logits.
      const size_t earlier = pending.size() - std::min(pending.size(), tokens.size());
      const size_t n = std::min(earlier > 0 ? earlier : pending.size(), kTokensAPass);
      const nn::Rows wanted = earlier > 0 ? nn::Rows::none : nn::Rows::all;
      const nn::Span span{.sequence = &state.kv, .tokens = pending.first(n), .rows = wanted};
      state.model->executor().forward({&span, 1}, rows, cancel);
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
  } catch (...) {
    if (state.kv.length() > before) state.kv.trim(state.kv.length() - before);
    state.tokens.resize(static_cast<size_t>(before - state.start));
    throw;
  }
  return logits;
}

}  // namespace mlxlm
