#include "engine/response_builder.h"

#include <limits>

#include "base/memory.h"

namespace mlxlm::engine {
namespace {

double rate(int64_t count, std::chrono::steady_clock::time_point since) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

ResponseBuilder::ResponseBuilder(const Tokenizer* tokenizer, const GenerateOptions& options, int64_t prompt_tokens,
                                 uint64_t seed)
    : stops_(options.stop), top_logprobs_(options.top_logprobs), full_logprobs_(options.full_logprobs) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
  response_.seed = seed;
  response_.prompt_tokens = prompt_tokens;
}

void ResponseBuilder::record(const Emission& emission) {
  if (response_.generation_tokens == 0) {
    response_.prompt_tps = rate(response_.prompt_tokens, start_);
    first_token_ = Clock::now();
  }
  response_.peak_memory = static_cast<double>(peak_resident_bytes()) / 1e9;
  response_.cached_tokens = emission.cached;
  response_.token = emission.choice.token;
  if (emission.choice.token < 0) return;  // a request for no tokens
  ++response_.generation_tokens;
  response_.generation_tps = rate(response_.generation_tokens, first_token_);
  response_.logprob = emission.choice.logprob;
  response_.from_draft = emission.from_draft;
  response_.draft_tokens = emission.drafts.proposed;
  response_.accepted_tokens = emission.drafts.accepted;
  response_.logprobs.clear();
  response_.top_logprobs.clear();
  if (emission.logits.empty()) {  // the only token that a grammar admits
    if (top_logprobs_ > 0) response_.top_logprobs.emplace_back(emission.choice.token, 0.0f);
    if (full_logprobs_) {
      response_.logprobs.assign(static_cast<size_t>(emission.vocab), -std::numeric_limits<float>::infinity());
      response_.logprobs[static_cast<size_t>(emission.choice.token)] = 0;
    }
    return;
  }
  response_.top_logprobs = sampling::top_logprobs(emission.logits, emission.log_normalizer, top_logprobs_);
  if (full_logprobs_) {
    response_.logprobs.assign(emission.logits.begin(), emission.logits.end());
    for (float& x : response_.logprobs) x -= emission.log_normalizer;
  }
}

void ResponseBuilder::finish(const char* reason) {
  if (detokenizer_) {
    detokenizer_->finalize();
    response_.text += stops_.feed(detokenizer_->take_segment());
    response_.text += stops_.flush();
  }
  response_.finish_reason = reason;
}

const GenerationResponse& ResponseBuilder::add(const Emission& emission) {
  record(emission);
  response_.text.clear();
  if (emission.finish == Finish::stop) {
    finish("stop");
    return response_;
  }
  if (detokenizer_ && emission.choice.token >= 0) {
    detokenizer_->add_token(emission.choice.token);
    response_.text = stops_.feed(detokenizer_->take_segment());
  }
  if (stops_.stopped()) {
    finish("stop");
  } else if (emission.finish == Finish::length) {
    finish("length");
    if (stops_.stopped()) response_.finish_reason = "stop";
  }
  return response_;
}

GenerationResponse ResponseBuilder::take() {
  std::vector<float> logprobs = std::move(response_.logprobs);
  response_.logprobs.clear();
  GenerationResponse response = response_;
  response.logprobs = std::move(logprobs);
  return response;
}

const GenerationResponse& ResponseBuilder::end(const char* reason) {
  response_.text.clear();
  finish(reason);
  return response_;
}

}  // namespace mlxlm::engine
