#include "engine/request.h"

#include <algorithm>

#include "base/error.h"
#include "engine/draft_model.h"

namespace mlxlm::engine {
namespace {

constexpr int kDraftModelTokens = 4;
constexpr int kPromptLookupTokens = 10;

void check_at_least(int64_t value, int64_t least, const char* name) {
  if (value < least) throw_invalid("{}: expected {} or more, got {}", name, least, value);
}

void check_cache(const Model& model, const GenerateOptions& options) {
  if (options.prompt_cache == nullptr) return;
  const PromptCache::State& cache = options.prompt_cache->state();
  if (cache.model != model.shared_impl()) throw_invalid("prompt_cache: it was made for another model");
  if (cache.in_use) throw_invalid("prompt_cache: another generation is using it");
  if (!(options.cache == PromptCacheOptions{}) && !(options.cache == cache.options)) {
    throw_invalid(
        "cache: a given prompt_cache keeps the options it was made with; leave these at their defaults, or make the "
        "prompt_cache with them");
  }
}

void check_speculation(const Model& model, const SpeculationOptions& o) {
  if (o.num_draft_tokens < 0 || o.num_draft_tokens > kMaxDraftTokens) {
    throw_invalid("num_draft_tokens: expected 0 to {}, got {}", kMaxDraftTokens, o.num_draft_tokens);
  }
  if (o.draft_model && o.prompt_lookup) {
    throw_invalid("speculation: expected a draft_model or prompt_lookup, got both; choose one");
  }
  if (o.draft_model) model.impl().check_draft(o.draft_model->shared_impl());
}

std::unique_ptr<DraftSource> make_draft(const Model& model, const GenerateOptions& options,
                                        const SequenceRequest& request, uint64_t seed) {
  const SpeculationOptions& o = options.speculation;
  if (o.prompt_lookup) return std::make_unique<PromptLookup>();
  if (!o.draft_model) return nullptr;
  const double cost =
      static_cast<double>(o.draft_model->info().bytes_per_token) / static_cast<double>(model.info().bytes_per_token);
  // A caller's own sampler runs for emitted tokens only, so the draft takes its best guess.
  return std::make_unique<DraftModel>(o.draft_model->shared_impl(), model.info().vocab_size,
                                      options.sampler_function ? SamplerOptions{} : request.sampler,
                                      request.xtc_special_tokens, seed, cost);
}

}  // namespace

std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return *ids;
  const auto& text = std::get<std::string>(prompt);
  const auto bos_id = tokenizer.bos_token_id();
  const auto bos = bos_id ? tokenizer.id_to_token(*bos_id) : std::nullopt;
  return tokenizer.encode(text, !(bos && !bos->empty() && text.starts_with(*bos)));
}

void check_generate_options(const Model& model, const std::vector<int32_t>& prompt, const GenerateOptions& options) {
  const int64_t vocab = model.info().vocab_size;
  if (prompt.empty()) throw_invalid("the prompt has no tokens; give some text or ids");
  sampling::check_token_ids(prompt, "prompt", vocab);
  if (options.eos_token_ids) sampling::check_token_ids(*options.eos_token_ids, "eos_token_ids", vocab);
  sampling::check_token_ids(options.extra_eos_token_ids, "extra_eos_token_ids", vocab);
  sampling::check_token_ids(options.xtc_special_tokens, "xtc_special_tokens", vocab);
  if (options.max_tokens < -1) throw_invalid("max_tokens: expected -1 (no limit) or more, got {}", options.max_tokens);
  check_at_least(options.prefill_step_size, 1, "prefill_step_size");
  check_at_least(options.top_logprobs, 0, "top_logprobs");
  for (size_t i = 0; i < options.logits_processors.size(); ++i) {
    if (!options.logits_processors[i]) throw_invalid("logits_processors[{}]: expected a processor, got none", i);
  }
  sampling::check_sampler_options(options.sampler, vocab);
  check_cache(model, options);
  check_speculation(model, options.speculation);
}

std::vector<int32_t> eos_token_ids(const Model& model, const GenerateOptions& options) {
  std::vector<int32_t> ids = options.eos_token_ids ? *options.eos_token_ids : model.eos_token_ids();
  ids.insert(ids.end(), options.extra_eos_token_ids.begin(), options.extra_eos_token_ids.end());
  std::ranges::sort(ids);
  return ids;
}

SequenceRequest make_request(const Model& model, const GenerateOptions& options, uint64_t seed,
                             PromptCache::State& cache) {
  SequenceRequest request;
  request.cache = &cache;
  request.sampler = options.sampler;
  request.sampler_function = options.sampler_function;
  request.processors = options.logits_processors;
  request.seed = seed;
  request.max_tokens = options.max_tokens;
  request.eos_token_ids = eos_token_ids(model, options);
  request.prefill_step_size = options.prefill_step_size;
  request.reuse_prefix = options.reuse_prefix;
  request.prompt_progress = options.prompt_progress;
  if (request.sampler.xtc_probability > 0) {
    auto& special = request.xtc_special_tokens;
    special = options.xtc_special_tokens;
    const auto newline = model.impl().tokenizer().encode("\n", false);
    special.insert(special.end(), newline.begin(), newline.end());
    special.insert(special.end(), request.eos_token_ids.begin(), request.eos_token_ids.end());
  }
  const SpeculationOptions& speculation = options.speculation;
  if (speculation.enabled()) {
    request.draft = make_draft(model, options, request, seed);
    const int standard = speculation.draft_model ? kDraftModelTokens : kPromptLookupTokens;
    request.max_draft_tokens = speculation.num_draft_tokens > 0 ? speculation.num_draft_tokens : standard;
  }
  return request;
}

}  // namespace mlxlm::engine
