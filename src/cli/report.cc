#include "cli/report.h"

#include <algorithm>
#include <cstddef>

#include "base/format.h"

namespace mlxlm::cli {

void GenerationRecord::add(const GenerationResponse& response) {
  text += response.text;
  // A last response without a token of its own (cancelled, or none asked for) only closes the stream.
  const bool has_token = response.token >= 0 && response.generation_tokens > static_cast<int64_t>(token_ids.size());
  if (has_token) {
    token_ids.push_back(response.token);
    logprobs.push_back(response.logprob);
    top_logprobs.push_back(response.top_logprobs);
    from_draft.push_back(response.from_draft);
  }
  last = response;
}

std::string statistics_text(const GenerationResponse& last) {
  std::string text = format_text(
      "Prompt: {} tokens, {:.3f} tokens-per-sec\n"
      "Generation: {} tokens, {:.3f} tokens-per-sec\n",
      last.prompt_tokens, last.prompt_tps, last.generation_tokens, last.generation_tps);
  if (last.draft_tokens > 0) {
    text +=
        format_text("Speculation: {} of {} guessed tokens right ({:.1f} %)\n", last.accepted_tokens, last.draft_tokens,
                    100.0 * static_cast<double>(last.accepted_tokens) / static_cast<double>(last.draft_tokens));
  }
  return text + format_text("Peak memory: {:.3f} GB\n", last.peak_memory);
}

io::Json record_json(const GenerationRecord& record, bool with_top_logprobs) {
  io::Json json;
  json["text"] = record.text;
  json["prompt_token_ids"] = record.prompt_token_ids;
  json["token_ids"] = record.token_ids;
  json["logprobs"] = record.logprobs;
  io::Json top = io::Json::array();
  for (const auto& list : record.top_logprobs) {
    if (!with_top_logprobs) break;
    io::Json entries = io::Json::array();
    for (const auto& [id, logprob] : list) entries.push_back(io::Json::array({id, logprob}));
    top.push_back(std::move(entries));
  }
  json["top_logprobs"] = std::move(top);
  json["from_draft"] = record.from_draft;
  json["finish_reason"] = record.last.finish_reason ? io::Json(*record.last.finish_reason) : io::Json(nullptr);
  json["prompt_tokens"] = record.last.prompt_tokens;
  json["cached_tokens"] = record.last.cached_tokens;
  json["prompt_tps"] = record.last.prompt_tps;
  json["generation_tokens"] = record.last.generation_tokens;
  json["generation_tps"] = record.last.generation_tps;
  json["draft_tokens"] = record.last.draft_tokens;
  json["accepted_tokens"] = record.last.accepted_tokens;
  json["peak_memory"] = record.last.peak_memory;
  json["seed"] = record.last.seed;
  return json;
}

std::string json_text(const io::Json& json, bool indented) {
  return json.dump(indented ? 2 : -1, ' ', false, io::Json::error_handler_t::replace) + "\n";
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string with_commas(int64_t value) {
  std::string text = std::to_string(value);
  const size_t first_digit = value < 0 ? 1 : 0;
  for (size_t i = text.size(); i > first_digit + 3;) text.insert(i -= 3, 1, ',');
  return text;
}

std::string bytes_text(double bytes) {
  for (const auto& [unit, size] :
       {std::pair("TB", 1e12), std::pair("GB", 1e9), std::pair("MB", 1e6), std::pair("KB", 1e3)}) {
    if (bytes >= size) return format_text("{:.{}f} {}", bytes / size, bytes / size < 100 ? 1 : 0, unit);
  }
  return format_text("{:.0f} bytes", bytes);
}

}  // namespace mlxlm::cli
