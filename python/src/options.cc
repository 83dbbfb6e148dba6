#include "options.h"

#include <chrono>

#include "sampling.h"

namespace mlxlm::python {
namespace {

constexpr const char* kWhole = "an int";
constexpr const char* kNumber = "a number";
constexpr const char* kIds = "a list of token ids";

void add_cache_options(OptionTable& table, Request& request) {
  PromptCacheOptions& cache = request.options.cache;
  table["max_kv_size"] = sets(cache.max_kv_size, "max_kv_size", kWhole);
  table["keep"] = sets(cache.keep, "keep", kWhole);
  table["kv_bits"] = sets(cache.kv_bits, "kv_bits", kWhole);
  table["kv_group_size"] = sets(cache.kv_group_size, "kv_group_size", kWhole);
  table["quantized_kv_start"] = sets(cache.quantized_kv_start, "quantized_kv_start", kWhole);
  table["reuse_prefix"] = sets(request.options.reuse_prefix, "reuse_prefix", "a bool");
  table["prompt_cache"] = [&](nb::handle value) {
    CacheHandle& handle = *option_value<CacheHandle*>(value, "prompt_cache", "a prompt cache");
    request.cache_handle = &handle;
    request.prompt_cache = handle.cache;
    request.options.prompt_cache = handle.cache.get();
  };
}

void add_speculation_options(OptionTable& table, SpeculationOptions& speculation) {
  table["draft_model"] = [&](nb::handle value) {
    speculation.draft_model = *option_value<Model*>(value, "draft_model", "a model");
  };
  table["prompt_lookup"] = sets(speculation.prompt_lookup, "prompt_lookup", "a bool");
  table["num_draft_tokens"] = sets(speculation.num_draft_tokens, "num_draft_tokens", kWhole);
}

void add_callables(OptionTable& table, Request& request) {
  table["sampler_function"] = [&](nb::handle value) {
    request.options.sampler_function = make_sampler_function(nb::borrow(value), request.callables);
  };
  table["logits_processors"] = [&](nb::handle value) {
    for (const nb::handle item : nb::borrow<nb::list>(value)) {
      Processor* own = nullptr;
      request.options.logits_processors.push_back(nb::try_cast(item, own, false) && own != nullptr
                                                      ? own->copy()
                                                      : make_processor(nb::borrow(item), request.callables));
    }
  };
  table["prompt_progress"] = [&](nb::handle value) {
    request.options.prompt_progress = make_progress(nb::borrow(value), request.callables);
  };
}

}  // namespace

void apply_options(const nb::dict& options, const OptionTable& table) {
  for (const auto& [key, value] : options) {
    const auto name = nb::cast<std::string>(key);
    const auto entry = table.find(name);
    if (entry == table.end()) {
      PyErr_Format(PyExc_TypeError, "unexpected option %s", name.c_str());
      throw nb::python_error();
    }
    entry->second(value);
  }
}

void add_sampler_options(OptionTable& table, SamplerOptions& sampler, std::vector<int32_t>& xtc_special_tokens) {
  table["temp"] = sets(sampler.temp, "temp", kNumber);
  table["top_p"] = sets(sampler.top_p, "top_p", kNumber);
  table["min_p"] = sets(sampler.min_p, "min_p", kNumber);
  table["min_tokens_to_keep"] = sets(sampler.min_tokens_to_keep, "min_tokens_to_keep", kWhole);
  table["top_k"] = sets(sampler.top_k, "top_k", kWhole);
  table["xtc_probability"] = sets(sampler.xtc_probability, "xtc_probability", kNumber);
  table["xtc_threshold"] = sets(sampler.xtc_threshold, "xtc_threshold", kNumber);
  table["xtc_special_tokens"] = sets(xtc_special_tokens, "xtc_special_tokens", kIds);
}

Request make_request(const nb::dict& options) {
  Request request;
  GenerateOptions& o = request.options;
  OptionTable table;
  table["max_tokens"] = sets(o.max_tokens, "max_tokens", kWhole);
  table["seed"] = [&](nb::handle value) {
    o.seed = option_value<uint64_t>(value, "seed", "an int from 0 to 2**64 - 1");
  };
  table["stop"] = sets(o.stop, "stop", "a list of strings");
  table["eos_token_ids"] = [&](nb::handle value) {
    o.eos_token_ids = option_value<std::vector<int32_t>>(value, "eos_token_ids", kIds);
  };
  table["extra_eos_token_ids"] = sets(o.extra_eos_token_ids, "extra_eos_token_ids", kIds);
  table["prefill_step_size"] = sets(o.prefill_step_size, "prefill_step_size", kWhole);
  table["top_logprobs"] = sets(o.top_logprobs, "top_logprobs", kWhole);
  table["full_logprobs"] = sets(o.full_logprobs, "full_logprobs", "a bool");
  table["timeout"] = [&](nb::handle value) {
    const std::chrono::duration<double> seconds(option_value<double>(value, "timeout", "a number of seconds"));
    using Clock = std::chrono::steady_clock;
    o.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
  };
  add_sampler_options(table, o.sampler, o.xtc_special_tokens);
  add_cache_options(table, request);
  add_speculation_options(table, o.speculation);
  add_callables(table, request);
  apply_options(options, table);
  return request;
}

}  // namespace mlxlm::python
