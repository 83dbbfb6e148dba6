// The same tokens give the same bits: whatever the threads, chunks, neighbours, instruction set or history of the
// cache.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <string>

#include "base/test_effort.h"
#include "properties/executor_runs.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using nn::Executor;
using nn::KvSequence;
using nn::Rows;
using nn::Span;
using test::expect_same_bits;
using test::feed;
using test::make_tokens;

struct Case {
  const char* name;
  const char* model_type;
  int bits;
  int group_size;
  DType dtype;
  bool mixed;
  bool exact;
  uint64_t hash;  ///< of the logits
};

// Every architecture, every width, dense and affine, both precisions.
constexpr Case kCases[] = {
    {"llama_4bit_fast", "llama", 4, 32, DType::bf16, false, false, 0xe2ba363b3ff23d92},
    {"llama_4bit_exact", "llama", 4, 32, DType::bf16, false, true, 0xd9c7d4157ae325c1},
    {"llama_dense_exact", "llama", 0, 32, DType::f32, false, true, 0xa7e865676f24d7a1},
    {"llama_2bit_fast", "llama", 2, 64, DType::f32, false, false, 0xa3d6c606ed86fcdf},
    {"qwen2_8bit_fast", "qwen2", 8, 64, DType::bf16, false, false, 0x29724d6453f1d234},
    {"qwen2_3bit_fast", "qwen2", 3, 32, DType::bf16, false, false, 0xb2b77cd29d8c98e5},
    {"qwen3_mixed_fast", "qwen3", 4, 64, DType::bf16, true, false, 0x7c43fbcd78dc9d42},
    {"qwen3_6bit_exact", "qwen3", 6, 32, DType::bf16, false, true, 0xceb96f259c3394d1},
    {"gemma3_5bit_fast", "gemma3_text", 5, 32, DType::bf16, false, false, 0x53996a75ab9001d2},
    {"gemma3_dense_fast", "gemma3_text", 0, 32, DType::bf16, false, false, 0xeaf80bb0357c5435},
};

io::Json config_of(const Case& c) {
  io::Json config = test::tiny_config(c.model_type);
  if (std::string(c.model_type) == "gemma3_text") {  // a window that is no multiple of a block, and both kinds of layer
    config["sliding_window"] = 70;
    config["sliding_window_pattern"] = 2;
    config["query_pre_attn_scalar"] = 16;
  }
  return config;
}

class Reproducibility : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    folder_ = test::make_random_model(
        {.config = config_of(c), .bits = c.bits, .group_size = c.group_size, .dtype = c.dtype, .mixed = c.mixed});
    // Past one attention partition (256 keys), several blocks (64), and the window.
    tokens_ = make_tokens(300, 17);
  }

  std::unique_ptr<Executor> make(int threads, const std::string& isa) const {
    return test::make_executor(folder_, {.exact = GetParam().exact, .threads = threads, .isa = isa});
  }

  // The same on every machine: FNV-1a of the logits, as the plain C++ kernels of x86-64 made them.
  static void check_bits(const std::vector<float>& logits) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const float x : logits) {
      const auto word = std::bit_cast<uint32_t>(x);
      for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (word >> shift & 0xff)) * 0x100000001b3;
    }
    EXPECT_EQ(hash, GetParam().hash) << "0x" << std::hex << hash;
  }

  std::shared_ptr<const io::ModelFolder> folder_;
  std::vector<int32_t> tokens_;
};

TEST_P(Reproducibility, ThreadsChunksAndInstructionSets) {
  const auto expected = feed(*make(1, "scalar"), tokens_, 512);
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::fabs(x));
  ASSERT_GT(largest, 0.5f) << "the logits should be alive";
  ASSERT_TRUE(std::isfinite(largest));
  for (const int threads : {1, 2, 3}) {
    const auto executor = make(threads, "");
    // Each chunk size with each number of threads, or with one of them.
    const std::vector<std::vector<size_t>> once = {{1, 512}, {64}, {7}};
    for (const size_t chunk :
         all_combinations() ? std::vector<size_t>{1, 7, 64, 512} : once[static_cast<size_t>(threads - 1)]) {
      SCOPED_TRACE(testing::Message() << executor->kernels().isa << ", " << threads << " threads, chunks of " << chunk);
      expect_same_bits(expected, feed(*executor, tokens_, chunk));
    }
  }
  for (const Kernels* kernels : available_kernels()) {
    SCOPED_TRACE(kernels->isa);
    expect_same_bits(expected, feed(*make(2, kernels->isa), tokens_, 64));
  }
  check_bits(expected);
}

TEST_P(Reproducibility, NeighboursInTheBatch) {
  const auto executor = make(2, "");
  const std::vector<std::vector<int32_t>> prompts = {make_tokens(1, 5), make_tokens(3, 7), make_tokens(65, 11),
                                                     make_tokens(130, 13), make_tokens(290, 17)};
  const int steps = 12;
  const auto vocab = static_cast<size_t>(executor->spec().vocab_size);
  // Alone: the prompt in one piece, then one token at a time.
  std::vector<std::vector<float>> expected;
  for (const auto& prompt : prompts) {
    auto tokens = prompt;
    const auto more = make_tokens(steps, 23);
    tokens.insert(tokens.end(), more.begin(), more.end());
    expected.push_back(feed(*executor, tokens, 512));
  }
  // Together: all prompts in one pass, then all sequences one token at a time.
  std::vector<KvSequence> sequences;
  std::vector<Span> spans;
  for (size_t i = 0; i < prompts.size(); ++i) sequences.push_back(executor->new_sequence());
  for (size_t i = 0; i < prompts.size(); ++i) spans.push_back({&sequences[i], prompts[i], Rows::last});
  std::vector<float> logits;
  executor->forward(spans, logits);
  const auto more = make_tokens(steps, 23);
  for (int step = 0; step <= steps; ++step) {
    ASSERT_EQ(logits.size(), prompts.size() * vocab);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const size_t row = prompts[i].size() - 1 + static_cast<size_t>(step);
      ASSERT_EQ(std::memcmp(&expected[i][row * vocab], &logits[i * vocab], vocab * sizeof(float)), 0)
          << "prompt " << i << ", step " << step;
    }
    if (step == steps) break;
    for (Span& span : spans) span.tokens = std::span(more).subspan(static_cast<size_t>(step), 1);
    executor->forward(spans, logits);
  }
}

TEST_P(Reproducibility, TrimmedAndForkedCaches) {
  const auto executor = make(2, "");
  const auto vocab = static_cast<size_t>(executor->spec().vocab_size);
  const auto expected = feed(*executor, tokens_, 512);
  KvSequence sequence = executor->new_sequence();
  feed(*executor, sequence, std::span(tokens_).first(200), 512);
  KvSequence fork = sequence.fork();
  feed(*executor, sequence, make_tokens(20, 41), 7);  // another branch: its blocks must not show in the fork
  const auto tail = feed(*executor, fork, std::span(tokens_).subspan(200), 33);
  expect_same_bits({expected.begin() + static_cast<std::ptrdiff_t>(200 * vocab), expected.end()}, tail);

  ASSERT_EQ(sequence.trim(20 + 30), 50);  // back into the common part: the branch is forgotten
  ASSERT_EQ(sequence.length(), 170);
  const auto again = feed(*executor, sequence, std::span(tokens_).subspan(170), 64);
  expect_same_bits({expected.begin() + static_cast<std::ptrdiff_t>(170 * vocab), expected.end()}, again);
}

TEST_P(Reproducibility, ReusedBlocksShowNothingOfTheirPast) {
  const auto executor = make(2, "");
  const auto expected = feed(*executor, tokens_, 64);
  for (int i = 0; i < 3; ++i) {
    feed(*executor, make_tokens(150, 3 + i), 50);  // leaves its blocks in the pool
    expect_same_bits(expected, feed(*executor, tokens_, 64));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Reproducibility, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace mlxlm
