// stream_generate and generate: one sequence through a batch of its own.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "engine/batch.h"
#include "engine/prompt_cache.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace mlxlm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double rate(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

// A text prompt gets the tokenizer's special tokens, unless it already starts with its BOS text.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) return *ids;
  const auto& text = std::get<std::string>(prompt);
  const auto bos_id = tokenizer.bos_token_id();
  const auto bos = bos_id ? tokenizer.id_to_token(*bos_id) : std::nullopt;
  return tokenizer.encode(text, !(bos && !bos->empty() && text.starts_with(*bos)));
}

void check_options(const Model& model, const std::vector<int32_t>& prompt, const GenerateOptions& options) {
  if (prompt.empty()) throw_invalid("the prompt has no tokens; give some text or ids");
  const int64_t vocab = model.info().vocab_size;
  for (const auto* ids : {&prompt, &options.extra_eos_token_ids}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= vocab) {
        throw_invalid("{}: expected ids in [0, {}), got {}", ids == &prompt ? "prompt" : "extra_eos_token_ids", vocab,
                      id);
      }
    }
  }
  if (options.max_tokens < -1) throw_invalid("max_tokens: expected -1 (no limit) or more, got {}", options.max_tokens);
  if (options.prefill_step_size < 1) {
    throw_invalid("prefill_step_size: expected at least 1, got {}", options.prefill_step_size);
  }
  if (options.top_logprobs < 0) throw_invalid("top_logprobs: expected 0 or more, got {}", options.top_logprobs);
  sampling::check_sampler_options(options.sampler, vocab);
  if (options.prompt_cache != nullptr) {
    const PromptCache::State& cache = options.prompt_cache->state();
    if (cache.model != model.shared_impl()) throw_invalid("prompt_cache: it was made for another model");
    if (cache.in_use) throw_invalid("prompt_cache: another generation is using it");
  }
}

}  // namespace

struct TokenStream::State {
  State(const Model& model, const Tokenizer& tokenizer, std::vector<int32_t> prompt, const GenerateOptions& options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void advance();  // the next response into `response`, or done

  GenerationResponse response;
  bool done = false;

 private:
  engine::Batch::Result next_token();
  void record(const engine::Batch::Result& result);
  void finish(const char* reason);
  bool is_eos(int32_t id) const;
  bool at_limit() const;

  GenerateOptions options_;
  Model model_;
  Tokenizer tokenizer_;
  std::unique_ptr<PromptCache> own_cache_;
  PromptCache::State* cache_;
  engine::Batch batch_;
  text::StreamingDetokenizer detokenizer_;
  text::StopMatcher stops_;
  Clock::time_point start_, first_token_;
  bool finished_ = false;  // the last response has been made
};

TokenStream::State::State(const Model& model, const Tokenizer& tokenizer, std::vector<int32_t> prompt,
                          const GenerateOptions& options)
    : options_(options),
      model_(model),
      tokenizer_(tokenizer),
      own_cache_(options.prompt_cache != nullptr ? nullptr : std::make_unique<PromptCache>(model)),
      cache_(&(own_cache_ ? *own_cache_ : *options.prompt_cache).state()),
      batch_(model.impl().executor()),
      detokenizer_(tokenizer_),
      stops_(options.stop),
      start_(Clock::now()) {
  response.seed = options.seed ? *options.seed : random_seed();
  response.prompt_tokens = static_cast<int64_t>(prompt.size());
  cache_->tokens.insert(cache_->tokens.end(), prompt.begin(), prompt.end());
  engine::SequenceRequest request;
  request.kv = &cache_->kv;
  request.tokens.assign(cache_->tokens.begin() + cache_->kv.length(), cache_->tokens.end());
  request.sampler = options.sampler;
  request.seed = response.seed;
  request.prefill_step_size = options.prefill_step_size;
  request.prompt_progress = options.prompt_progress;
  batch_.add(std::move(request));
  cache_->in_use = true;
}

TokenStream::State::~State() { cache_->in_use = false; }

bool TokenStream::State::is_eos(int32_t id) const {
  const auto& eos = model_.eos_token_ids();
  const auto& extra = options_.extra_eos_token_ids;
  return std::binary_search(eos.begin(), eos.end(), id) || std::find(extra.begin(), extra.end(), id) != extra.end();
}

bool TokenStream::State::at_limit() const {
  if (options_.max_tokens >= 0) return response.generation_tokens >= options_.max_tokens;
  const int64_t context = model_.info().max_context;
  return context > 0 && static_cast<int64_t>(cache_->tokens.size()) >= context;
}

// Steps until a token is sampled; an empty result (id −1) when the caller asked to stop meanwhile.
engine::Batch::Result TokenStream::State::next_token() {
  while (!options_.cancel.stop_requested()) {
    const auto results = batch_.step();
    if (!results.empty()) return results.front();
  }
  return {.id = -1, .choice = {}, .log_normalizer = 0, .logits = {}};
}

void TokenStream::State::record(const engine::Batch::Result& result) {
  if (response.generation_tokens == 0) {
    first_token_ = Clock::now();
    response.prompt_tps = rate(response.prompt_tokens, seconds_since(start_));
  }
  ++response.generation_tokens;
  response.generation_tps = rate(response.generation_tokens, seconds_since(first_token_));
  response.peak_memory = static_cast<double>(peak_resident_bytes()) / 1e9;
  response.token = result.choice.token;
  response.logprob = result.choice.logprob;
  response.top_logprobs = sampling::top_logprobs(result.logits, result.log_normalizer, options_.top_logprobs);
  response.logprobs.clear();
  if (options_.full_logprobs) {
    response.logprobs.assign(result.logits.begin(), result.logits.end());
    for (float& x : response.logprobs) x -= result.log_normalizer;
  }
  cache_->tokens.push_back(result.choice.token);
}

void TokenStream::State::finish(const char* reason) {
  detokenizer_.finalize();
  response.text += stops_.feed(detokenizer_.take_segment());
  response.text += stops_.flush();
  response.finish_reason = stops_.stopped() && reason != std::string_view("cancelled") ? "stop" : reason;
  response.peak_memory = static_cast<double>(peak_resident_bytes()) / 1e9;
  cache_->in_use = false;
  finished_ = true;
}

void TokenStream::State::advance() {
  if (finished_) {
    done = true;
    return;
  }
  response.text.clear();
  if (options_.max_tokens == 0) {  // the reference fills the cache and yields nothing: here one empty response
    const auto result = next_token();
    response.prompt_tps = rate(response.prompt_tokens, seconds_since(start_));
    return finish(result.id < 0 ? "cancelled" : "length");
  }
  const auto result = next_token();
  if (result.id < 0) return finish("cancelled");
  record(result);
  if (is_eos(result.choice.token)) return finish("stop");
  detokenizer_.add_token(result.choice.token);
  response.text = stops_.feed(detokenizer_.take_segment());
  if (stops_.stopped()) return finish("stop");
  if (at_limit()) finish("length");
}

TokenStream::TokenStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;

TokenStream::iterator TokenStream::begin() {
  state_->advance();
  return iterator(this);
}

TokenStream::iterator::reference TokenStream::iterator::operator*() const { return stream_->state_->response; }

TokenStream::iterator& TokenStream::iterator::operator++() {
  stream_->state_->advance();
  return *this;
}

bool TokenStream::iterator::at_end() const { return stream_ == nullptr || stream_->state_->done; }

TokenStream stream_generate(const Model& model, const Tokenizer& tokenizer, const Prompt& prompt,
                            const GenerateOptions& options) {
  std::vector<int32_t> ids = prompt_ids(tokenizer, prompt);
  check_options(model, ids, options);
  return TokenStream(std::make_unique<TokenStream::State>(model, tokenizer, std::move(ids), options));
}

std::string generate(const Model& model, const Tokenizer& tokenizer, const Prompt& prompt,
                     const GenerateOptions& options) {
  std::string text;
  for (const GenerationResponse& response : stream_generate(model, tokenizer, prompt, options)) text += response.text;
  return text;
}

}  // namespace mlxlm
