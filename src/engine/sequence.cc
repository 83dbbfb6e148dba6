#include "engine/sequence.h"

#include <algorithm>
#include <new>

#include "base/error.h"

namespace mlxlm::engine {
namespace {

std::string names_of(std::span<const std::shared_ptr<LogitsProcessor>> processors) {
  std::vector<std::string> names;
  for (const auto& processor : processors) names.push_back(processor->name());
  return join(names, ", ");
}

}  // namespace

std::vector<float>& renewed(RowMemory& memory) {
  if (!memory || memory.use_count() > 1) memory = std::make_shared<std::vector<float>>();
  return *memory;
}

Sequence::Sequence(int64_t id, SequenceRequest request, ModelImpl& model)
    : id_(id),
      request_(std::move(request)),
      model_(model),
      vocab_(model.info().vocab_size),
      sampler_(request_.sampler_function ? SamplerOptions{} : request_.sampler, request_.seed,
               model.executor().kernels(), request_.xtc_special_tokens),
      draft_length_(std::min(request_.max_draft_tokens, kMaxDraftTokens),
                    request_.draft ? request_.draft->cost_of_a_guess() : 0),
      prompt_begin_(cache().kv.length()),
      prompt_total_(pending()) {
  cache().in_use = true;
  if (request_.prompt_progress) request_.prompt_progress(0, prompt_total_);
}

Sequence::~Sequence() {
  settle();
  remember();
  cache().in_use = false;
}

int64_t Sequence::pending() const { return std::max<int64_t>(0, cache().size() - cache().kv.length()); }

bool Sequence::ready() {
  if (request_.max_tokens == 0) return pending() == 0;
  return row_ < n_rows_ || forced_token().has_value() || error_;
}

void Sequence::start_processors() {
  if (started_) return;
  started_ = true;
  for (const auto& p : request_.processors) p->start({cache().tokens, vocab_, request_.eos_token_ids});
}

// Asked once for each position, as process() would be.
std::optional<int32_t> Sequence::forced_token() {
  if (forced_known_) return forced_;
  forced_known_ = true;
  forced_.reset();
  // A caller's own code must see every token, and another processor might ban the only id that is left.
  if (request_.processors.size() != 1 || request_.sampler_function) return forced_;
  try {
    start_processors();
    forced_ = request_.processors.front()->forced_token(cache().tokens);
  } catch (...) {
    error_ = std::current_exception();
  }
  return forced_;
}

Emission Sequence::emit(const RowMemory& pass_rows) {
  Emission emission;
  in_prompt_ = false;
  if (request_.max_tokens == 0) {
    emission.finish = Finish::length;
  } else if (error_) {
    emission.error = error_;
  } else {
    try {
      if (const auto forced = forced_token()) {
        append(emission, *forced);
      } else {
        emission = emit_sampled(pass_rows);
      }
    } catch (...) {
      emission.error = std::current_exception();
    }
  }
  emission.id = id_;
  emission.vocab = vocab_;
  emission.drafts = counts_;
  emission.cached = cached();
  return emission;
}

Emission Sequence::emit_sampled(const RowMemory& pass_rows) {
  Emission emission;
  const auto vocab = static_cast<size_t>(vocab_);
  const std::span<float> logits = rows_.subspan(row_ * vocab, vocab);
  emission.choice = choose(logits, n_rows_ > 1 ? kept_rows_ : pass_rows);
  emission.logits = logits;
  emission.log_normalizer = sampler_.log_normalizer();
  append(emission, emission.choice.token);
  return emission;
}

sampling::Choice Sequence::choose(std::span<float> logits, const RowMemory& memory) {
  const Kernels& kernels = model_.executor().kernels();
  const auto n = static_cast<int64_t>(logits.size());
  const auto& tokens = cache().tokens;
  const int64_t position = cache().size();
  if (!request_.processors.empty()) {
    start_processors();
    const bool good = kernels.argmax(logits.data(), n) >= 0;
    for (const auto& p : request_.processors) p->process_row(tokens, logits, memory);
    if (good && kernels.argmax(logits.data(), n) < 0) {
      throw_invalid(
          "after the logits processors ({}) the logits for position {} hold NaN or +inf, or are all -inf; at least "
          "one token must keep a finite logit",
          names_of(request_.processors), position);
    }
  }
  if (!request_.sampler_function) return sampler_.sample(logits, position);
  sampler_.sample(logits, position);  // greedy: checks the logits and normalises them
  std::vector<float>& logprobs = renewed(logprobs_);
  logprobs.assign(logits.begin(), logits.end());
  for (float& x : logprobs) x -= sampler_.log_normalizer();
  const int32_t token = request_.sampler_function(logprobs, {request_.seed, position, logprobs_});
  if (token < 0 || token >= vocab_) {
    throw_invalid("sampler_function: expected an id in [0, {}), got {}", vocab_, token);
  }
  return {token, logits[static_cast<size_t>(token)] - sampler_.log_normalizer()};
}

// The token joins the history, and is judged against the guess made for its place.
void Sequence::append(Emission& emission, int32_t token) {
  emission.choice.token = token;
  forced_known_ = false;
  const bool guessed = judged_ < drafts_.size();
  emission.from_draft = guessed && drafts_[judged_] == token;
  if (emission.from_draft) {
    ++judged_;
    ++counts_.accepted;
    ++row_;
  } else {
    row_ = n_rows_ = 0;  // what follows was computed for another token
  }
  if (guessed && (!emission.from_draft || judged_ == drafts_.size())) {
    draft_length_.record(static_cast<int64_t>(drafts_.size()), static_cast<int64_t>(judged_));
  }
  if (!emission.from_draft) {
    settle();
    drafts_.clear();
    judged_ = 0;
  }
  cache().tokens.push_back(token);
  ++generated_;
  emission.finish = finish_of(token);
}

Finish Sequence::finish_of(int32_t token) const {
  const auto& eos = request_.eos_token_ids;
  if (std::binary_search(eos.begin(), eos.end(), token)) return Finish::stop;
  if (request_.max_tokens >= 0) return generated_ >= request_.max_tokens ? Finish::length : Finish::none;
  const int64_t context = model_.info().max_context;
  return context > 0 && cache().size() >= context ? Finish::length : Finish::none;
}

std::vector<int32_t> Sequence::guesses() {
  if (!request_.draft) return {};
  int64_t most = draft_length_.next();
  if (request_.max_tokens >= 0) most = std::min(most, request_.max_tokens - generated_ - 1);
  const PromptCacheOptions& options = cache().options;
  // Crossing into quantised keys and values cannot be taken back.
  if (options.kv_bits > 0 && cache().kv.length() < options.quantized_kv_start) {
    most = std::min(most, options.quantized_kv_start - cache().size());
  }
  if (most <= 0) return {};
  std::vector<int32_t> ids;
  try {
    ids = request_.draft->propose(cache().tokens, most, request_.processors);
  } catch (const Error&) {  // the request does not need the guesses
    return {};
  }
  const auto outside = std::ranges::find_if(ids, [&](int32_t id) { return id < 0 || id >= vocab_; });
  ids.erase(outside, ids.end());
  return ids;
}

nn::Span Sequence::plan(int64_t budget) {
  if (cached_ < 0) cached_ = cache().kv.length();
  const std::span<const int32_t> waiting = cache().pending();
  const auto n = std::min(waiting.size(), static_cast<size_t>(std::min(budget, request_.prefill_step_size)));
  wants_rows_ = n == waiting.size() && request_.max_tokens != 0;
  fed_.assign(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(n));
  drafts_.clear();
  judged_ = 0;
  if (waiting.size() == 1 && !in_prompt_) drafts_ = guesses();
  fed_.insert(fed_.end(), drafts_.begin(), drafts_.end());
  const nn::Rows rows = !wants_rows_ ? nn::Rows::none : drafts_.empty() ? nn::Rows::last : nn::Rows::all;
  return {&cache().kv, fed_, rows};
}

bool Sequence::shares_prefixes(const PrefixCache& prefixes) const {
  return request_.reuse_prefix && recomputable() && prefixes.byte_budget() > 0 &&
         cache().options == PromptCacheOptions{};
}

std::optional<uint64_t> Sequence::find_prefix(PrefixCache& prefixes) {
  const int64_t length = cache().kv.length();
  if (pending() < 2 || length % kKvBlockTokens != 0 || !shares_prefixes(prefixes)) return std::nullopt;
  const int64_t held = prefixes.adopt(cache().tokens, cache().size() - 1, cache().kv);
  prefixes.store(cache().tokens, cache().kv, stored_);
  if (pending() < kKvBlockTokens || stored_.blocks * kKvBlockTokens != held) return std::nullopt;
  return PrefixCache::key_after(stored_.key, cache().pending().first(kKvBlockTokens));
}

void Sequence::finish_pass(std::span<float> logits, PrefixCache& prefixes) {
  counts_.proposed += static_cast<int64_t>(drafts_.size());
  row_ = 0;
  n_rows_ = wants_rows_ ? drafts_.size() + 1 : 0;
  rows_ = logits;
  if (n_rows_ > 1) {
    renewed(kept_rows_).assign(logits.begin(), logits.end());
    rows_ = *kept_rows_;
  }
  if (shares_prefixes(prefixes)) prefixes.store(cache().tokens, cache().kv, stored_);
  report_progress();
}

void Sequence::settle() {
  const int64_t excess = cache().kv.length() - cache().size();
  if (excess > 0) cache().kv.trim(excess);
}

// What it leaves is known to later requests up to the last token.
void Sequence::remember() {
  PrefixCache& prefixes = model_.prefix_cache();
  if (!shares_prefixes(prefixes)) return;
  try {
    prefixes.store_end(cache().tokens, cache().kv, stored_);
  } catch (const std::bad_alloc&) {  // then they are not
  }
}

void Sequence::give_up_memory() {
  cache().kv.trim(cache().kv.length());
  row_ = n_rows_ = 0;
  drafts_.clear();
  judged_ = 0;
}

int64_t Sequence::prompt_fed() const {
  return std::clamp<int64_t>(cache().kv.length() - prompt_begin_, 0, prompt_total_);
}

void Sequence::report_progress() {
  const int64_t fed = prompt_fed();
  if (reported_ == prompt_total_ || fed <= reported_) return;
  reported_ = fed;
  if (request_.prompt_progress) request_.prompt_progress(fed, prompt_total_);
}

}  // namespace mlxlm::engine
