// Emissions of one request become responses: text, stop strings, finish reasons, rates.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "engine/sequence.h"
#include "mlxlm/generate.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace mlxlm::engine {

class ResponseBuilder {
 public:
  /// Without a tokenizer no text is made.
  ResponseBuilder(const Tokenizer* tokenizer, const GenerateOptions& options, int64_t prompt_tokens, uint64_t seed);

  /// The response for the next token. Its finish_reason is set when the request is over.
  const GenerationResponse& add(const Emission& emission);
  /// The response of a request that ends without a token of its own: "cancelled", "deadline" or "error".
  const GenerationResponse& end(const char* reason);
  const GenerationResponse& response() const { return response_; }
  /// The response, its large parts moved out.
  GenerationResponse take();

 private:
  using Clock = std::chrono::steady_clock;

  void record(const Emission& emission);
  void finish(const char* reason);

  std::optional<text::StreamingDetokenizer> detokenizer_;
  text::StopMatcher stops_;
  int top_logprobs_;
  bool full_logprobs_;
  GenerationResponse response_;
  Clock::time_point start_ = Clock::now(), first_token_{};
};

}  // namespace mlxlm::engine
