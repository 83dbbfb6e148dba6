// What the engine's features gain on a model: generation_bench MODEL_FOLDER [ROUNDS]. Figures for people, not tests;
// each is a ratio of two runs that alternate.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/model_impl.h"
#include "mlxlm/mlxlm.h"

namespace mlxlm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

GenerationResponse last_of(const Loaded& loaded, const Prompt& prompt, const GenerateOptions& options) {
  GenerationResponse last;
  for (const auto& r : stream_generate(loaded.model, loaded.tokenizer, prompt, options)) last = r;
  return last;
}

std::vector<int32_t> chat(const Loaded& loaded, const std::string& text) {
  return loaded.tokenizer.apply_chat_template({{"user", text}});
}

// The ratio of two measurements that alternate, as a line of the report.
void compare(const char* what, int rounds, const std::function<double()>& before,
             const std::function<double()>& after) {
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) {
    const double b = before();
    ratios.push_back(after() / b);
  }
  std::ranges::sort(ratios);
  std::printf("%-58s x%.2f (%.2f-%.2f)\n", what, median(ratios), ratios.front(), ratios.back());
}

void prompt_lookup(const Loaded& loaded, int rounds, const char* what, const std::vector<int32_t>& prompt) {
  GenerateOptions plain = {.max_tokens = 200, .reuse_prefix = false}, lookup = plain;
  lookup.speculation.prompt_lookup = true;
  GenerationResponse r;
  compare(
      what, rounds, [&] { return last_of(loaded, prompt, plain).generation_tps; },
      [&] {
        r = last_of(loaded, prompt, lookup);
        return r.generation_tps;
      });
  std::printf("  %lld tokens, %lld guessed, %lld right\n", static_cast<long long>(r.generation_tokens),
              static_cast<long long>(r.draft_tokens), static_cast<long long>(r.accepted_tokens));
}

double time_to_first_token(const Loaded& loaded, const std::vector<int32_t>& prompt) {
  const auto start = Clock::now();
  last_of(loaded, prompt, {.max_tokens = 1});
  return seconds_since(start);
}

void warm_prefix(const Loaded& loaded, int rounds) {
  std::vector<int32_t> prompt;
  const auto text = loaded.tokenizer.encode("The quick brown fox jumps over the lazy dog, and then it rests a while. ");
  while (prompt.size() < 2000) prompt.insert(prompt.end(), text.begin(), text.end());
  prompt.resize(2000);
  compare(
      "first token after 2,000 known tokens, cold / warm", rounds,
      [&] {
        last_of(loaded, prompt, {.max_tokens = 1});
        return time_to_first_token(loaded, prompt);
      },
      [&] {
        loaded.model.impl().prefix_cache().release(int64_t{1} << 60);
        return time_to_first_token(loaded, prompt);
      });
}

void sampling(const Loaded& loaded, int rounds) {
  const auto prompt = chat(loaded, "Write a story about a lighthouse.");
  const GenerateOptions greedy = {.max_tokens = 200, .seed = 1};
  GenerateOptions sampled = greedy;
  sampled.sampler = {.temp = 0.7f, .top_p = 0.95f};
  compare(
      "decoding with top_p 0.95 / greedy", rounds, [&] { return last_of(loaded, prompt, greedy).generation_tps; },
      [&] { return last_of(loaded, prompt, sampled).generation_tps; });
}

void verification(const Loaded& loaded, int rounds) {
  nn::Executor& executor = loaded.model.impl().executor();
  const std::vector<int32_t> prompt(256, 1000), tokens(64, 1001);
  std::vector<float> logits;
  std::printf("a pass over n tokens of one sequence, in passes over one:");
  double one = 0;
  for (const size_t n : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}) {
    std::vector<double> times;
    for (int i = 0; i < 8 * rounds; ++i) {
      nn::KvSequence kv = executor.new_sequence();
      const nn::Span begin{&kv, prompt, nn::Rows::none};
      if (i == 0) executor.forward({&begin, 1}, logits);
      const nn::Span span{&kv, std::span(tokens).first(n), nn::Rows::all};
      const auto start = Clock::now();
      executor.forward({&span, 1}, logits);
      times.push_back(seconds_since(start));
    }
    if (n == 1) one = median(times);
    std::printf(" %zu: %.2f", n, median(times) / one);
  }
  std::printf("\n");
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: generation_bench MODEL_FOLDER [ROUNDS]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const Loaded loaded = load(argv[1]);
  const std::string code =
      "def area(shape):\n    if shape.kind == 'circle':\n        return 3.14159 * shape.radius * shape.radius\n"
      "    if shape.kind == 'square':\n        return shape.side * shape.side\n    raise ValueError(shape.kind)\n";
  prompt_lookup(loaded, rounds, "prompt lookup / plain, copying",
                chat(loaded, "Repeat this code twice, exactly as it is:\n" + code));
  prompt_lookup(loaded, rounds, "prompt lookup / plain, nothing to copy",
                chat(loaded, "Write a short story about a lighthouse keeper and the sea."));
  warm_prefix(loaded, rounds);
  sampling(loaded, rounds);
  verification(loaded, rounds);
  return 0;
}

}  // namespace
}  // namespace mlxlm

int main(int argc, char** argv) try { return mlxlm::run(argc, argv); } catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
