// Random requests, for showing that a request gets the same tokens however it is run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mlxlm/mlxlm.h"

namespace mlxlm::test {

/// What a stateful processor saw at each call: the tokens' number and hash. Kept outside the processor, which dies with
/// its request.
using Calls = std::vector<std::pair<size_t, uint64_t>>;

/// A request as data: every run makes its own processors from it.
struct RandomRequest {
  uint64_t index = 0;
  std::vector<int32_t> prompt;
  GenerateOptions options;  // without processors
  LogitsProcessorOptions penalties;
  bool stateful = false;  // a processor whose answer depends on its earlier calls, and that cannot be cloned
  bool min_length = false;
  bool own_sampler = false;
  std::string regex;  // empty: no grammar

  std::string describe() const;
};

/// The request with this index: the same on every machine.
RandomRequest random_request(uint64_t index);

/// Its options with fresh processors; `calls` receives what the stateful one sees.
GenerateOptions options_for(const RandomRequest& request, const Tokenizer& tokenizer, Calls& calls);

/// All that a request gives.
struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  std::string finish_reason;
  Calls calls;

  bool operator==(const Outcome&) const = default;
};

void add(Outcome& outcome, const GenerationResponse& response);

}  // namespace mlxlm::test
