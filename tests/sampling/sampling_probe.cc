// Test tool: rows of float32 on standard input, what the samplers' filters or the penalties make of them on standard
// output.
//   sampling_probe filter VOCAB OPTIONS     rows of log-probabilities → for each VOCAB bytes, 1 where a token survives
//   sampling_probe process VOCAB OPTIONS    rows of logits → rows of logits
// OPTIONS is a JSON object; `process` has "tokens", one list of ids for each row, and "prompt_length".
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "io/json.h"
#include "sampling/sampler.h"
#include "sampling/test_rows.h"

namespace {

using mlxlm::io::Json;

bool read_row(std::vector<float>& row) {
  return std::fread(row.data(), sizeof(float), row.size(), stdin) == row.size();
}

void filter(size_t vocab, const Json& json) {
  mlxlm::SamplerOptions options;
  options.temp = 1;
  options.top_p = json.value("top_p", 0.0f);
  options.min_p = json.value("min_p", 0.0f);
  options.min_tokens_to_keep = json.value("min_tokens_to_keep", 1);
  options.top_k = json.value("top_k", 0);
  options.xtc_probability = json.value("xtc_probability", 0.0f);
  options.xtc_threshold = json.value("xtc_threshold", 0.1f);
  const auto special = json.value("xtc_special_tokens", std::vector<int32_t>());
  mlxlm::sampling::check_sampler_options(options, static_cast<int64_t>(vocab));
  std::vector<float> row(vocab);
  while (read_row(row)) {
    std::vector<char> kept(vocab, 0);
    const bool xtc = options.xtc_probability > 0;
    for (const int32_t id : mlxlm::sampling::survivors(mlxlm::sampling::TestRow(row).row, options, xtc, special)) {
      kept[static_cast<size_t>(id)] = 1;
    }
    std::fwrite(kept.data(), 1, vocab, stdout);
  }
}

void process(size_t vocab, const Json& json) {
  mlxlm::LogitsProcessorOptions options;
  const Json bias = json.value("logit_bias", Json::object());
  for (const auto& [id, value] : bias.items()) {
    options.logit_bias.emplace_back(std::stoi(id), value.get<float>());
  }
  options.repetition_penalty = json.value("repetition_penalty", 0.0f);
  options.repetition_context_size = json.value("repetition_context_size", 20);
  options.presence_penalty = json.value("presence_penalty", 0.0f);
  options.presence_context_size = json.value("presence_context_size", 20);
  options.frequency_penalty = json.value("frequency_penalty", 0.0f);
  options.frequency_context_size = json.value("frequency_context_size", 20);
  options.penalize_prompt = json.value("penalize_prompt", true);
  const auto processors = mlxlm::make_logits_processors(options);
  std::vector<float> row(vocab);
  for (const Json& list : json.at("tokens")) {
    if (!read_row(row)) throw std::runtime_error("fewer rows than lists of tokens");
    const auto tokens = list.get<std::vector<int32_t>>();
    const std::span<const int32_t> prompt = std::span(tokens).first(json.value("prompt_length", tokens.size()));
    for (const auto& p : processors) p->start({prompt, static_cast<int64_t>(vocab), {}});
    for (const auto& p : processors) p->process(tokens, row);
    std::fwrite(row.data(), sizeof(float), vocab, stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("usage: sampling_probe filter|process VOCAB OPTIONS < rows");
    const Json options = Json::parse(argv[3]);
    (std::string(argv[1]) == "filter" ? filter : process)(std::stoul(argv[2]), options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sampling_probe: %s\n", error.what());
    return 1;
  }
}
