// Windows with a kept start and quantised keys and values: the same bits whatever the threads, chunks, neighbours,
// instruction set or history of the cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/test_effort.h"
#include "properties/executor_runs.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using nn::Executor;
using nn::KvOptions;
using nn::KvSequence;
using nn::Rows;
using nn::Span;
using test::expect_same_bits;
using test::feed;
using test::make_tokens;

struct KvCase {
  const char* name;
  KvOptions options;
};

// Past the window several times, with 300 tokens; starts before, inside and behind the first block.
constexpr KvCase kKvCases[] = {
    {"max100_keep4", {.max_size = 100, .keep = 4}},
    {"max100_keep0", {.max_size = 100, .keep = 0}},
    {"max150_keep70", {.max_size = 150, .keep = 70}},
    {"bits8_start0", {.bits = 8, .group_size = 32}},
    {"bits8_start5", {.bits = 8, .group_size = 32, .quantized_start = 5}},
    {"bits8_start70", {.bits = 8, .group_size = 64, .quantized_start = 70}},
    {"bits4_start0", {.bits = 4, .group_size = 64}},
    {"bits4_start5", {.bits = 4, .group_size = 32, .quantized_start = 5}},
    {"bits4_start70", {.bits = 4, .group_size = 32, .quantized_start = 70}},
    {"max100_keep4_bits8_start0", {.max_size = 100, .keep = 4, .bits = 8, .group_size = 32}},
    {"max100_keep4_bits4_start120", {.max_size = 100, .keep = 4, .bits = 4, .group_size = 32, .quantized_start = 120}},
};

// gemma3: a layer with a window of its own beside one without, one KV head of 64; llama: two KV heads of 64.
std::shared_ptr<const io::ModelFolder> make_folder(const std::string& model_type) {
  io::Json config = test::tiny_config(model_type);
  config["head_dim"] = 64;
  if (model_type == "gemma3_text") {
    config["num_key_value_heads"] = 1;
    config["sliding_window"] = 70;
    config["sliding_window_pattern"] = 2;
    config["query_pre_attn_scalar"] = 64;
  }
  return test::make_random_model({.config = config, .bits = 4, .group_size = 32, .dtype = DType::bf16});
}

struct Model {
  const char* type;
  bool exact;
};

class KvOptionsTest : public testing::TestWithParam<std::tuple<KvCase, Model>> {
 protected:
  void SetUp() override {
    folder_ = make_folder(std::get<1>(GetParam()).type);
    tokens_ = make_tokens(300, 17);
  }
  const KvOptions& options() const { return std::get<0>(GetParam()).options; }

  std::unique_ptr<Executor> make(int threads, const std::string& isa) const {
    return test::make_executor(folder_, {.exact = std::get<1>(GetParam()).exact, .threads = threads, .isa = isa});
  }

  /// All rows of one sequence into an empty one.
  static void copy_rows(const Executor& executor, const KvSequence& from, KvSequence& to) {
    const auto layers = static_cast<int>(executor.spec().layers.size());
    std::vector<int64_t> held_from;
    for (int layer = 0; layer < layers; ++layer) held_from.push_back(from.held_from(layer));
    to.import_positions(from.length(), held_from, from.quantized());
    for (int layer = 0; layer < layers; ++layer) {
      const int64_t start = held_from[static_cast<size_t>(layer)];
      const bool kept = start > 0 && executor.spec().layers[static_cast<size_t>(layer)].attention.window == 0;
      if (kept) copy_rows(from, to, layer, 0, from.options().keep);
      copy_rows(from, to, layer, start, from.length() - start);
    }
  }
  static void copy_rows(const KvSequence& from, KvSequence& to, int layer, int64_t first, int64_t n) {
    const KvLayout layout = from.layout(layer);
    if (from.quantized()) {
      nn::KvCodes k, v;
      from.read_codes(layer, first, n, k, v);
      to.write_codes(layer, first, n, k, v);
      return;
    }
    std::vector<float> k(static_cast<size_t>(layout.n_kv_heads * n * layout.head_dim)), v(k.size());
    from.read_layer(layer, first, n, k.data(), v.data());
    to.write_layer(layer, first, n, k.data(), v.data());
  }

  std::shared_ptr<const io::ModelFolder> folder_;
  std::vector<int32_t> tokens_;
};

TEST_P(KvOptionsTest, ThreadsChunksAndInstructionSets) {
  const auto expected = feed(*make(1, "scalar"), tokens_, 512, options());
  using Runs = std::vector<std::pair<int, std::vector<size_t>>>;
  const Runs all = {{1, {64, 512}}, {2, {1, 7, 512}}, {3, {64}}}, some = {{1, {64}}, {2, {7}}};
  for (const auto& [threads, chunks] : all_combinations() ? all : some) {
    const auto executor = make(threads, "");
    for (const size_t chunk : chunks) {
      SCOPED_TRACE(testing::Message() << threads << " threads, chunks of " << chunk);
      expect_same_bits(expected, feed(*executor, tokens_, chunk, options()));
    }
  }
}

TEST_P(KvOptionsTest, HaveAnEffectFromTheirPositionOn) {
  const auto executor = make(2, "");
  const auto vocab = static_cast<size_t>(executor->spec().vocab_size);
  KvSequence plain = executor->new_sequence();
  const auto without = feed(*executor, plain, tokens_, 512), with = feed(*executor, tokens_, 512, options());
  size_t first = tokens_.size();  // the first position whose logits differ
  for (size_t p = tokens_.size(); p-- > 0;) {
    if (std::memcmp(&without[p * vocab], &with[p * vocab], vocab * sizeof(float)) != 0) first = p;
  }
  int64_t expected = static_cast<int64_t>(tokens_.size());
  if (options().max_size > 0) expected = std::min(expected, options().max_size);
  if (options().bits > 0) expected = std::min(expected, std::max<int64_t>(1, options().quantized_start));
  EXPECT_EQ(static_cast<int64_t>(first), expected);
}

TEST_P(KvOptionsTest, NeighboursWithOtherOptions) {
  const auto executor = make(2, "");
  const std::vector<KvOptions> all = {
      options(), {}, {.bits = 8, .group_size = 64, .quantized_start = 50}, options(), {.max_size = 40, .keep = 2}};
  const std::vector<int> lengths = {130, 65, 51, 3, 90};
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> expected;
  for (size_t i = 0; i < all.size(); ++i) {
    prompts.push_back(make_tokens(lengths[i] + 12, static_cast<int>(i) + 5));
    KvSequence alone = executor->new_sequence(all[i]);
    expected.push_back(feed(*executor, alone, prompts.back(), 512));
  }
  std::vector<KvSequence> sequences;
  for (const KvOptions& one : all) sequences.push_back(executor->new_sequence(one));
  std::vector<float> logits;
  for (int step = -1; step < 12; ++step) {  // all prompts in one pass, then one token at a time
    std::vector<Span> spans;
    std::vector<float> want;
    const auto vocab = executor->spec().vocab_size;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto first = static_cast<size_t>(step < 0 ? 0 : lengths[i] + step);
      const auto count = static_cast<size_t>(step < 0 ? lengths[i] : 1);
      const Rows rows = i == 1 ? Rows::none : i == 2 ? Rows::last : Rows::all;
      spans.push_back({&sequences[i], std::span(prompts[i]).subspan(first, count), rows});
      const size_t wanted = rows == Rows::none ? 0 : rows == Rows::last ? 1 : count;
      const auto end = expected[i].begin() + static_cast<std::ptrdiff_t>(first + count) * vocab;
      want.insert(want.end(), end - static_cast<std::ptrdiff_t>(wanted) * vocab, end);
    }
    executor->forward(spans, logits);
    SCOPED_TRACE(testing::Message() << "step " << step);
    expect_same_bits(want, logits);
  }
}

TEST_P(KvOptionsTest, ForkedTrimmedAndImportedCaches) {
  const auto executor = make(2, "");
  const auto vocab = static_cast<size_t>(executor->spec().vocab_size);
  const auto expected = feed(*executor, tokens_, 512, options());
  const auto tail_of = [&](int64_t from) { return std::span(expected).subspan(static_cast<size_t>(from) * vocab); };
  const auto rest = [&](int64_t from) { return std::span(tokens_).subspan(static_cast<size_t>(from)); };

  KvSequence sequence = executor->new_sequence(options());
  feed(*executor, sequence, std::span(tokens_).first(200), 512);
  KvSequence fork = sequence.fork();
  feed(*executor, sequence, make_tokens(48, 41), 7);  // another branch: its blocks must not show in the fork
  expect_same_bits(tail_of(200), feed(*executor, fork, rest(200), 33));
  ASSERT_TRUE(sequence.can_trim(48));
  ASSERT_EQ(sequence.trim(48), 48);
  expect_same_bits(tail_of(200), feed(*executor, sequence, rest(200), 64));

  KvSequence source = executor->new_sequence(options()), copy = executor->new_sequence(options());
  feed(*executor, source, std::span(tokens_).first(250), 50);
  copy_rows(*executor, source, copy);
  expect_same_bits(tail_of(250), feed(*executor, copy, rest(250), 9));

  if (options().bits > 0) {  // behind the start of the codes nothing can be taken back
    const int64_t start = std::max<int64_t>(1, options().quantized_start);
    EXPECT_EQ(source.can_trim(250 - start + 1), start == 1);  // then nothing is left
    ASSERT_EQ(source.trim(250 - start + 1), 250);             // all of it
    expect_same_bits(expected, feed(*executor, source, tokens_, 100));
  }
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<KvCase, Model>>& tested) {
  const auto& [c, model] = tested.param;
  return std::string(c.name) + "_" + model.type + (model.exact ? "_exact" : "_fast");
}
INSTANTIATE_TEST_SUITE_P(Cases, KvOptionsTest,
                         testing::Combine(testing::ValuesIn(kKvCases),
                                          testing::Values(Model{"llama", true}, Model{"gemma3_text", false})),
                         name_of_case);

}  // namespace
}  // namespace mlxlm
