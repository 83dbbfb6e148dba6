// A token costs no allocation once buffers have their size.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "sampling/sampler.h"
#include "sampling/test_rows.h"

namespace {
int64_t allocations = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size > 0 ? size : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace mlxlm::sampling {
namespace {

TEST(Allocation, NoneForASample) {
  std::vector<std::vector<float>> rows;
  for (uint64_t i = 0; i < 4; ++i) rows.push_back(random_logits(20000, 3, i));
  for (const SamplerOptions& o : {SamplerOptions{},
                                  {.temp = 1},
                                  {.temp = 0.7f, .top_p = 0.95f},
                                  {.temp = 1, .min_p = 0.02f, .min_tokens_to_keep = 5},
                                  {.temp = 1, .top_k = 40},
                                  {.temp = 1, .top_p = 0.9f, .xtc_probability = 1, .xtc_threshold = 0.01f}}) {
    Sampler sampler(o, 1, select_kernels());
    for (int64_t i = 0; i < 8; ++i) sampler.sample(rows[static_cast<size_t>(i % 4)], i);
    const int64_t before = allocations;
    for (int64_t i = 0; i < 40; ++i) sampler.sample(rows[static_cast<size_t>(i % 4)], i);
    EXPECT_EQ(allocations, before);
  }
}

TEST(Allocation, NoneForAPenalty) {
  const auto processors = make_logits_processors(
      {.logit_bias = {{5, 1.0f}}, .repetition_penalty = 1.1f, .presence_penalty = 0.1f, .frequency_penalty = 0.1f});
  std::vector<int32_t> tokens;
  std::vector<float> logits = random_logits(5000, 3, 1);
  for (const auto& p : processors) p->start({tokens, 5000, {}});
  int64_t before = 0;
  for (int32_t i = 0; i < 100; ++i) {
    tokens.push_back(i * 31 % 5000);
    if (i == 10) {
      tokens.reserve(1000);
      before = allocations;
    }
    for (const auto& p : processors) p->process(tokens, logits);
  }
  EXPECT_EQ(allocations, before);
  EXPECT_GT(before, 0);
}

}  // namespace
}  // namespace mlxlm::sampling
