// BatchGenerator and batch_generate.
#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "engine/request.h"
#include "engine/response_builder.h"
#include "engine/scheduler.h"
#include "mlxlm/batch.h"

namespace mlxlm {
namespace {

using Clock = std::chrono::steady_clock;

double per_second(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

Error as_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e;
  } catch (const std::exception& e) {
    return {ErrorKind::invalid_value, e.what()};
  } catch (...) {
    return {ErrorKind::invalid_value, "a callable of the request threw something that is no std::exception"};
  }
}

engine::SchedulerOptions scheduler_options(const BatchOptions& options) {
  if (options.completion_batch_size < 1) {
    throw_invalid("completion_batch_size: expected 1 or more, got {}", options.completion_batch_size);
  }
  if (options.prefill_batch_size < 1) {
    throw_invalid("prefill_batch_size: expected 1 or more, got {}", options.prefill_batch_size);
  }
  if (options.kv_bytes < 0) throw_invalid("kv_bytes: expected 0 (no limit) or more, got {}", options.kv_bytes);
  return {options.completion_batch_size, options.prefill_batch_size, options.kv_bytes};
}

}  // namespace

struct BatchGenerator::State {
  State(const Model& m, std::optional<Tokenizer> t, const BatchOptions& o)
      : model(m), tokenizer(std::move(t)), options(o), scheduler(m.shared_impl(), scheduler_options(o)) {}

  struct Request {
    PromptCache cache;
    engine::ResponseBuilder responses;
    std::stop_token cancel;
    std::optional<Clock::time_point> deadline;
    int64_t prompt_reported = 0;
  };

  int64_t insert(const Prompt& prompt, const GenerateOptions& request);
  BatchStep next(const std::function<bool()>& interrupted);
  void end_cancelled(BatchStep& step);
  void report_prompts(BatchStep& step);
  void respond(const engine::Emission& emission, BatchStep& step);
  void retire(int64_t uid);
  void count(const engine::Emission& emission, const Request& request);

  Model model;
  std::optional<Tokenizer> tokenizer;
  BatchOptions options;
  BatchStats stats;
  std::map<int64_t, Request> requests;  // by uid, which is the scheduler's id; outlives the scheduler's use of caches
  std::map<int64_t, PromptCache> finished;
  engine::Scheduler scheduler;
};

int64_t BatchGenerator::State::insert(const Prompt& prompt, const GenerateOptions& request) {
  if (!tokenizer && std::holds_alternative<std::string>(prompt)) {
    throw_invalid("prompt: expected token ids, got text; give the BatchGenerator a tokenizer");
  }
  if (!tokenizer && !request.stop.empty()) {
    throw_invalid("stop: stop strings need text; give the BatchGenerator a tokenizer");
  }
  const auto ids = tokenizer ? engine::prompt_ids(*tokenizer, prompt) : std::get<std::vector<int32_t>>(prompt);
  engine::check_generate_options(model, ids, request);
  const uint64_t seed = request.seed ? *request.seed : random_seed();
  auto entry = std::make_unique<Request>(Request{
      request.prompt_cache != nullptr ? request.prompt_cache->fork() : PromptCache(model, request.cache),
      engine::ResponseBuilder(tokenizer ? &*tokenizer : nullptr, request, static_cast<int64_t>(ids.size()), seed),
      request.cancel, request.deadline});
  auto& tokens = entry->cache.state().tokens;
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  const int64_t uid = scheduler.add(engine::make_request(model, request, seed, entry->cache.state()));
  requests.emplace(uid, std::move(*entry));  // the state that the scheduler points to does not move
  stats.prompt_tokens += static_cast<int64_t>(ids.size());
  return uid;
}

void BatchGenerator::State::retire(int64_t uid) {
  const auto it = requests.find(uid);
  scheduler.remove(uid);
  if (options.keep_caches) finished.emplace(uid, std::move(it->second.cache));
  requests.erase(it);
}

void BatchGenerator::State::end_cancelled(BatchStep& step) {
  std::vector<int64_t> over;
  for (auto& [uid, request] : requests) {
    const bool cancelled = request.cancel.stop_requested();
    if (!cancelled && !(request.deadline && Clock::now() >= *request.deadline)) continue;
    step.responses.push_back({uid, request.responses.end(cancelled ? "cancelled" : "deadline"), std::nullopt});
    over.push_back(uid);
  }
  for (const int64_t uid : over) retire(uid);
}

void BatchGenerator::State::report_prompts(BatchStep& step) {
  for (auto& [uid, request] : requests) {
    const engine::Sequence* sequence = scheduler.find(uid);
    if (sequence == nullptr || sequence->prompt_fed() <= request.prompt_reported) continue;
    request.prompt_reported = sequence->prompt_fed();
    step.prompts.push_back({uid, request.prompt_reported, sequence->prompt_total()});
  }
}

void BatchGenerator::State::count(const engine::Emission& emission, const Request& request) {
  const GenerationResponse& before = request.responses.response();
  if (before.generation_tokens == 0) stats.cached_tokens += emission.cached;
  if (emission.choice.token >= 0) ++stats.generation_tokens;
  stats.draft_tokens += emission.drafts.proposed - before.draft_tokens;
  stats.accepted_tokens += emission.drafts.accepted - before.accepted_tokens;
}

void BatchGenerator::State::respond(const engine::Emission& emission, BatchStep& step) {
  const auto it = requests.find(emission.id);
  if (it == requests.end()) return;
  Request& request = it->second;
  if (emission.error) {
    step.responses.push_back({emission.id, request.responses.end("error"), as_error(emission.error)});
  } else {
    count(emission, request);
    step.responses.push_back({emission.id, request.responses.add(emission), std::nullopt});
  }
  if (step.responses.back().response.finish_reason) retire(emission.id);
}

BatchStep BatchGenerator::State::next(const std::function<bool()>& interrupted) {
  BatchStep step;
  end_cancelled(step);
  if (scheduler.empty()) return step;
  const Clock::time_point start = Clock::now();
  const auto& emissions = scheduler.step(CancelCheck({}, &interrupted));
  report_prompts(step);
  // A response retires its request, which the scheduler then forgets: its emissions stay.
  for (const engine::Emission& emission : emissions) respond(emission, step);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  (scheduler.prompt_tokens_fed() > 0 ? stats.prompt_time : stats.generation_time) += seconds;
  std::ranges::sort(step.responses, {}, &BatchResponse::uid);
  return step;
}

BatchGenerator::BatchGenerator(const Model& model, const BatchOptions& options)
    : state_(std::make_unique<State>(model, std::nullopt, options)) {}
BatchGenerator::BatchGenerator(const Model& model, const Tokenizer& tokenizer, const BatchOptions& options)
    : state_(std::make_unique<State>(model, tokenizer, options)) {}
BatchGenerator::~BatchGenerator() = default;
BatchGenerator::BatchGenerator(BatchGenerator&&) noexcept = default;
BatchGenerator& BatchGenerator::operator=(BatchGenerator&&) noexcept = default;

int64_t BatchGenerator::insert(const Prompt& prompt, const GenerateOptions& options) {
  return state_->insert(prompt, options);
}

BatchStep BatchGenerator::next(const std::function<bool()>& interrupted) { return state_->next(interrupted); }

bool BatchGenerator::idle() const { return state_->requests.empty(); }

bool BatchGenerator::remove(int64_t uid) {
  if (!state_->requests.contains(uid)) return state_->finished.erase(uid) > 0;
  state_->scheduler.remove(uid);
  state_->requests.erase(uid);
  return true;
}

PromptCache BatchGenerator::extract_cache(int64_t uid) {
  if (const auto it = state_->finished.find(uid); it != state_->finished.end()) {
    PromptCache cache = std::move(it->second);
    state_->finished.erase(it);
    return cache;
  }
  const auto it = state_->requests.find(uid);
  if (it == state_->requests.end()) {
    throw_error(ErrorKind::not_found,
                "extract_cache: there is no request {}; those that have finished keep their caches with keep_caches",
                uid);
  }
  return PromptCache(std::make_unique<PromptCache::State>(it->second.cache.state().copy()));
}

BatchStats BatchGenerator::stats() const {
  BatchStats stats = state_->stats;
  stats.prompt_tps = per_second(stats.prompt_tokens - stats.cached_tokens, stats.prompt_time);
  stats.generation_tps = per_second(stats.generation_tokens, stats.generation_time);
  stats.peak_memory = static_cast<double>(peak_resident_bytes()) / 1e9;
  stats.preemptions = state_->scheduler.preemptions();
  return stats;
}

void BatchGenerator::close() {
  while (!state_->requests.empty()) remove(state_->requests.begin()->first);
  state_->finished.clear();
}

BatchResult batch_generate(const Model& model, const Tokenizer& tokenizer, const std::vector<Prompt>& prompts,
                           const std::vector<GenerateOptions>& options, const BatchOptions& batch) {
  if (options.size() != 1 && options.size() != prompts.size()) {
    throw_invalid("batch_generate: expected options for all {} prompts, or one for all of them, got {}", prompts.size(),
                  options.size());
  }
  const auto options_of = [&](size_t i) -> const GenerateOptions& {
    return options.size() == 1 ? options.front() : options[i];
  };
  const auto ends = [&](int32_t token, const GenerateOptions& o) {
    return std::ranges::binary_search(engine::eos_token_ids(model, o), token);
  };
  BatchGenerator generator(model, tokenizer, batch);
  std::map<int64_t, size_t> index;
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerateOptions own = options_of(i);
    // Options for all: each request gets processors of its own, where these can be copied.
    for (auto& processor : own.logits_processors) {
      auto copy = options.size() == 1 && i > 0 && processor ? processor->clone() : nullptr;
      if (copy) processor = std::move(copy);
    }
    index[generator.insert(prompts[i], own)] = i;
  }
  BatchResult result;
  result.texts.resize(prompts.size());
  result.token_ids.resize(prompts.size());
  result.logprobs.resize(prompts.size());
  result.finish_reasons.resize(prompts.size());
  result.errors.resize(prompts.size());
  while (!generator.idle()) {
    for (BatchResponse& r : generator.next().responses) {
      const size_t i = index.at(r.uid);
      result.texts[i] += r.response.text;
      if (r.response.finish_reason) result.finish_reasons[i] = *r.response.finish_reason;
      result.errors[i] = std::move(r.error);
      // A request that was cancelled repeats its last token.
      const bool is_new = r.response.generation_tokens > static_cast<int64_t>(result.token_ids[i].size());
      if (!is_new || (r.response.finish_reason == "stop" && ends(r.response.token, options_of(i)))) continue;
      result.token_ids[i].push_back(r.response.token);
      result.logprobs[i].push_back(r.response.logprob);
    }
  }
  if (batch.keep_caches) {
    for (const auto& [uid, i] : index) result.caches.push_back(generator.extract_cache(uid));
  }
  result.stats = generator.stats();
  return result;
}

}  // namespace mlxlm
