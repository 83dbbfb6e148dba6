// Time of one sample over 151,936 logits on one thread, median and best of many. Usage: sampling_bench [isa]
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "sampling/sampler.h"

namespace mlxlm::sampling {
namespace {

constexpr size_t kVocab = 151936;
constexpr int kRows = 16;  // 9.7 MB: more than a second-level cache holds, as between two forward passes

/// Milliseconds this thread has run: time given to other processes does not count.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

/// Like a language model's: a normally distributed bulk, and `heads` tokens above it that hold most of the mass. The
/// sharper, the fewer of them matter.
std::vector<float> logits_like(double sharpness, size_t heads, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> bulk(0.0f, 2.2f);
  std::vector<float> row(kVocab);
  for (float& x : row) x = bulk(random);
  for (size_t i = 0; i < heads; ++i) {
    row[random() % kVocab] = static_cast<float>(18 - sharpness * std::log(1.0 + static_cast<double>(i)));
  }
  return row;
}

void measure(const char* name, const std::function<void(int)>& f) {
  std::vector<double> times;
  for (int i = 0; i < 400; ++i) {
    const double start = now();
    f(i);
    times.push_back(now() - start);
  }
  std::sort(times.begin(), times.end());
  std::printf("  %-34s %7.3f ms median %7.3f ms best\n", name, times[times.size() / 2], times.front());
  std::fflush(stdout);
}

void bench_samplers(const Kernels& kernels, const std::vector<std::vector<float>>& rows) {
  const std::pair<const char*, SamplerOptions> cases[] = {
      {"greedy", {}},
      {"temp 0.7", {.temp = 0.7f}},
      {"temp 1", {.temp = 1}},
      {"temp 0.7 top_p 0.95", {.temp = 0.7f, .top_p = 0.95f}},
      {"temp 0.7 top_p 0.999", {.temp = 0.7f, .top_p = 0.999f}},
      {"temp 0.7 min_p 0.05", {.temp = 0.7f, .min_p = 0.05f}},
      {"temp 0.7 top_k 40", {.temp = 0.7f, .top_k = 40}},
      {"temp 0.7 top_p 0.95 xtc", {.temp = 0.7f, .top_p = 0.95f, .xtc_probability = 1}},
      {"temp 0.6 top_p 0.95 top_k 20", {.temp = 0.6f, .top_p = 0.95f, .top_k = 20}}};
  for (const auto& [name, options] : cases) {
    Sampler sampler(options, 1, kernels);
    measure(name, [&](int i) { sampler.sample(rows[static_cast<size_t>(i % kRows)], i); });
  }
}

void bench_processors(const std::vector<std::vector<float>>& rows) {
  std::vector<int32_t> tokens;
  tokens.reserve(8000);
  std::mt19937 random(1);
  for (int i = 0; i < 8000; ++i) tokens.push_back(static_cast<int32_t>(random() % 4000 * 37));
  std::vector<float> logits = rows[0];
  for (const int window : {20, 1024, 0}) {
    const auto processors = make_logits_processors({.repetition_penalty = 1.1f,
                                                    .repetition_context_size = window,
                                                    .presence_penalty = 0.5f,
                                                    .presence_context_size = window,
                                                    .frequency_penalty = 0.5f,
                                                    .frequency_context_size = window});
    const std::string name = "three penalties, window " + (window > 0 ? std::to_string(window) : "8000 (all)");
    measure(name.c_str(), [&](int) {
      for (const auto& p : processors) p->process(tokens, logits);
    });
  }
  measure("20 top logprobs", [&](int i) { top_logprobs(rows[static_cast<size_t>(i % kRows)], 18.0f, 20); });
}

int run(const char* isa) {
  const Kernels& kernels = select_kernels(isa);
  std::printf("%zu logits, %s\n", kVocab, kernels.isa);
  struct Shape {
    const char* name;
    double sharpness;
    size_t heads;
  };
  for (const Shape& shape : {Shape{"peaked", 3.0, 500}, {"typical", 1.5, 2000}, {"broad", 0.7, 5000}, {"flat", 0, 0}}) {
    std::printf("%s\n", shape.name);
    std::vector<std::vector<float>> rows;
    for (uint64_t i = 0; i < kRows; ++i) rows.push_back(logits_like(shape.sharpness, shape.heads, i));
    bench_samplers(kernels, rows);
    if (shape.heads == 2000) bench_processors(rows);
  }
  return 0;
}

}  // namespace
}  // namespace mlxlm::sampling

int main(int argc, char** argv) { return mlxlm::sampling::run(argc > 1 ? argv[1] : ""); }
