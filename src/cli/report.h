// What a generation gave, collected for statistics and JSON.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/json.h"
#include "mlxlm/generate.h"

namespace mlxlm::cli {

/// Everything streamed so far.
struct GenerationRecord {
  std::string text;
  std::vector<int32_t> prompt_token_ids;
  std::vector<int32_t> token_ids;                                    ///< an ending EOS included
  std::vector<float> logprobs;                                       ///< one per token
  std::vector<std::vector<std::pair<int32_t, float>>> top_logprobs;  ///< one list per token
  std::vector<bool> from_draft;                                      ///< one per token: it was guessed ahead
  GenerationResponse last{};

  void add(const GenerationResponse& response);
};

/// "Prompt: …", "Generation: …", "Peak memory: …": the lines of mlx_lm.generate, and how many guesses were right.
std::string statistics_text(const GenerationResponse& last);

/// One object: text, prompt_token_ids, token_ids, logprobs, top_logprobs, from_draft, finish_reason, prompt_tokens,
/// cached_tokens, prompt_tps, generation_tokens, generation_tps, draft_tokens, accepted_tokens, peak_memory, seed.
/// `with_top_logprobs`: else that list is [].
io::Json record_json(const GenerationRecord& record, bool with_top_logprobs);

/// One line of JSON, or indented. Text that is not UTF-8 is replaced, never an error.
std::string json_text(const io::Json& json, bool indented = false);

/// The middle value; the mean of the two middle ones of an even count. `values` is not empty.
double median(std::vector<double> values);

/// "134,515,008", "96.6 MB" (1 MB = 1e6 bytes).
std::string with_commas(int64_t value);
std::string bytes_text(double bytes);

}  // namespace mlxlm::cli
