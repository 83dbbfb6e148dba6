// What the public interface has for bindings: logits of given tokens, rows that may be kept, responses by value,
// interruption, EOS ids of a request, streamed text, filters alone.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

#include "mlxlm/mlxlm.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using Ids = std::vector<int32_t>;

class Bindings : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    io::Json config = test::tiny_config("llama");
    config["vocab_size"] = 256;
    config["eos_token_id"] = 3;
    folder_ = test::write_random_model({.config = config, .bits = 4, .dtype = DType::bf16, .seed = 5});
    loaded_ = std::make_unique<Loaded>(load(folder_, {.threads = 2}));
  }
  static void TearDownTestSuite() {
    loaded_.reset();
    std::filesystem::remove_all(folder_);
  }

  static TokenStream stream(const Ids& prompt, const GenerateOptions& options) {
    return stream_generate(loaded_->model, loaded_->tokenizer, prompt, options);
  }
  static Ids tokens(const Ids& prompt, const GenerateOptions& options) {
    Ids ids;
    for (const auto& r : stream(prompt, options)) ids.push_back(r.token);
    return ids;
  }

  static std::string folder_;
  static std::unique_ptr<Loaded> loaded_;
};
std::string Bindings::folder_;
std::unique_ptr<Loaded> Bindings::loaded_;

TEST_F(Bindings, LogitsOfPartsAreThoseOfTheWhole) {
  const Ids ids = {104, 101, 108, 108, 111, 32, 119};
  PromptCache whole(loaded_->model), parts(loaded_->model);
  const auto expected = compute_logits(loaded_->model, ids, whole);
  ASSERT_EQ(expected.size(), ids.size() * 256);
  auto got = compute_logits(loaded_->model, std::span(ids).first(3), parts);
  const auto rest = compute_logits(loaded_->model, std::span(ids).subspan(3), parts);
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, expected);
  EXPECT_EQ(parts.tokens(), ids);
}

TEST_F(Bindings, LogitsGoOnWhereAGenerationEnded) {
  PromptCache cache(loaded_->model), plain(loaded_->model);
  Ids ids = {104, 105};
  const Ids generated = tokens(ids, {.max_tokens = 4, .eos_token_ids = Ids{}, .prompt_cache = &cache});
  ids.insert(ids.end(), generated.begin(), generated.end());
  compute_logits(loaded_->model, ids, plain);
  const Ids next = {33};  // the last token generated is still to be computed, and not asked for
  EXPECT_EQ(compute_logits(loaded_->model, next, cache), compute_logits(loaded_->model, next, plain));
}

TEST_F(Bindings, LogitsThatFailLeaveTheCacheAsItWas) {
  PromptCache cache(loaded_->model);
  const Ids ids = {1, 2, 4};
  compute_logits(loaded_->model, ids, cache);
  const Ids outside = {5, 256};
  EXPECT_THROW(compute_logits(loaded_->model, outside, cache), Error);
  EXPECT_THROW(compute_logits(loaded_->model, {}, cache), Error);
  EXPECT_THROW(compute_logits(loaded_->model, ids, cache, [] { return true; }), Error);
  EXPECT_EQ(cache.tokens(), ids);
  PromptCache again(loaded_->model);
  compute_logits(loaded_->model, ids, again);
  EXPECT_EQ(compute_logits(loaded_->model, ids, cache), compute_logits(loaded_->model, ids, again));
  auto running = stream(ids, {.prompt_cache = &cache});
  EXPECT_THROW(compute_logits(loaded_->model, ids, cache), Error);
}

/// Keeps the memory of every row it has seen, with a copy of the values.
class Keeper : public LogitsProcessor {
 public:
  void process(std::span<const int32_t>, std::span<float>) override { FAIL() << "the engine calls process_row"; }
  void process_row(std::span<const int32_t>, std::span<float> logits, const RowMemory& memory) override {
    ASSERT_GE(logits.data(), memory->data());
    ASSERT_LE(logits.data() + logits.size(), memory->data() + memory->size());
    kept.push_back({memory, logits, {logits.begin(), logits.end()}});
  }
  struct Row {
    RowMemory memory;
    std::span<float> logits;
    std::vector<float> values;
  };
  std::vector<Row> kept;
};

TEST_F(Bindings, KeptRowsStayAsTheyWere) {
  for (const bool speculate : {false, true}) {
    const auto keeper = std::make_shared<Keeper>();
    std::vector<std::pair<RowMemory, std::vector<float>>> sampled;
    GenerateOptions options{.max_tokens = 12, .logits_processors = {keeper}};
    options.speculation.prompt_lookup = speculate;
    options.sampler_function = [&](std::span<const float> logprobs, const SamplingContext& context) {
      EXPECT_EQ(logprobs.data(), context.row->data());
      sampled.emplace_back(context.row, *context.row);
      return static_cast<int32_t>(std::ranges::max_element(logprobs) - logprobs.begin());
    };
    const Ids ids = tokens({104, 105, 104, 105}, options);
    ASSERT_EQ(keeper->kept.size(), ids.size());
    for (const auto& row : keeper->kept) EXPECT_TRUE(std::ranges::equal(row.logits, row.values));
    for (const auto& [memory, values] : sampled) EXPECT_EQ(*memory, values);
  }
}

TEST_F(Bindings, ResponsesByValueAreThoseOfTheIterator) {
  const GenerateOptions options{.max_tokens = 6, .top_logprobs = 2, .full_logprobs = true};
  auto by_value = stream({104, 105}, options);
  for (const GenerationResponse& expected : stream({104, 105}, options)) {
    const auto response = by_value.next();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->token, expected.token);
    EXPECT_EQ(response->text, expected.text);
    EXPECT_EQ(response->logprobs, expected.logprobs);
    EXPECT_EQ(response->top_logprobs, expected.top_logprobs);
    EXPECT_EQ(response->finish_reason, expected.finish_reason);
  }
  EXPECT_FALSE(by_value.next());
}

TEST_F(Bindings, AnInterruptionEndsTheGeneration) {
  int asked = 0;
  GenerateOptions options{.max_tokens = 100, .interrupted = [&] { return ++asked > 12; }};
  Ids ids;
  std::optional<std::string> reason;
  for (const auto& r : stream({104, 105}, options)) {
    ids.push_back(r.token);
    reason = r.finish_reason;
  }
  EXPECT_EQ(reason, "cancelled");
  EXPECT_LT(ids.size(), 15u);
  BatchGenerator batch(loaded_->model, loaded_->tokenizer);
  batch.insert(Ids{104, 105}, {.max_tokens = 4});
  EXPECT_THROW(batch.next([] { return true; }), Error);
  Ids rest;
  while (!batch.idle()) {
    for (const auto& r : batch.next().responses) rest.push_back(r.response.token);
  }
  EXPECT_EQ(rest, tokens({104, 105}, {.max_tokens = 4})) << "the interrupted step has lost nothing";
}

TEST_F(Bindings, EosOfARequestTakesThePlaceOfTheModels) {
  const Ids free = tokens({104, 105}, {.max_tokens = 20, .eos_token_ids = Ids{}});
  const int32_t end = free[5];
  const auto first = std::ranges::find(free, end) - free.begin() + 1;
  EXPECT_EQ(tokens({104, 105}, {.max_tokens = 20, .eos_token_ids = Ids{end}}), Ids(free.begin(), free.begin() + first));
  EXPECT_THROW(stream({104}, {.eos_token_ids = Ids{256}}), Error);
  const auto batch = batch_generate(loaded_->model, loaded_->tokenizer, {Ids{104, 105}},
                                    {{.max_tokens = 20, .eos_token_ids = Ids{end}}});
  EXPECT_EQ(batch.token_ids.front(), Ids(free.begin(), free.begin() + first - 1));
}

TEST_F(Bindings, StreamedSegmentsJoinToTheDecoding) {
  const std::string text = "a \xF0\x9F\x98\x80 b";
  StreamingDetokenizer detokenizer(loaded_->tokenizer);
  for (int round = 0; round < 2; ++round) {
    std::string all;
    for (const int32_t id : loaded_->tokenizer.encode(text, false)) {
      detokenizer.add_token(id);
      all += detokenizer.take_segment();
    }
    detokenizer.finalize();
    EXPECT_EQ(all + detokenizer.take_segment(), text);
    detokenizer.reset();
  }
}

TEST(FilterLogprobs, RemovesWhatTheSamplerWouldNotDraw) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> row;
  for (const double p : {0.5, 0.22, 0.18, 0.10}) row.push_back(static_cast<float>(std::log(p)));
  const auto filtered = [&](const SamplerOptions& options, const std::vector<int32_t>& special = {}) {
    std::vector<float> copy = row;
    filter_logprobs(copy, options, special);
    std::string kept;
    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_TRUE(copy[i] == row[i] || copy[i] == -kInf);
      kept += copy[i] == -kInf ? '-' : '+';
    }
    return kept;
  };
  EXPECT_EQ(filtered({}), "++++");
  EXPECT_EQ(filtered({.top_p = 0.75f, .top_k = 3}), "+++-");
  EXPECT_EQ(filtered({.min_p = 0.3f}), "+++-");
  EXPECT_EQ(filtered({.top_k = 1}), "+---");
  EXPECT_EQ(filtered({.xtc_probability = 1.0f, .xtc_threshold = 0.15f}), "--++");
  EXPECT_EQ(filtered({.xtc_probability = 1.0f, .xtc_threshold = 0.15f}, {0}), "+-++");
  EXPECT_THROW(filtered({.top_k = 4}), Error);
  row.front() = kInf;
  EXPECT_THROW(filtered({.top_k = 1}), Error);
}

}  // namespace
}  // namespace mlxlm
