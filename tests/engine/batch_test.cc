// BatchGenerator and batch_generate on a tiny random model: requests that share a batch do not touch each other.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "engine/model_impl.h"
#include "mlxlm/mlxlm.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using Ids = std::vector<int32_t>;

io::Json config_of(int64_t vocab) {
  io::Json config = test::tiny_config("llama");
  config["vocab_size"] = vocab;
  config["max_position_embeddings"] = 4096;
  config["eos_token_id"] = 3;
  return config;
}

Ids ids_from(int32_t first, size_t count) {
  Ids ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(32 + (static_cast<size_t>(first) + i * 7) % 200);
  return ids;
}

class BatchTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = test::write_random_model({.config = config_of(256), .bits = 4, .dtype = DType::bf16, .seed = 5});
    loaded_ = std::make_unique<Loaded>(load(folder_, {.threads = 2, .prefix_cache_bytes = 1 << 20}));
  }
  static void TearDownTestSuite() {
    loaded_.reset();
    std::filesystem::remove_all(folder_);
  }

  static const Model& model() { return loaded_->model; }
  static const Tokenizer& tokenizer() { return loaded_->tokenizer; }
  static Ids alone(const Ids& prompt, GenerateOptions options) {
    Ids ids;
    options.reuse_prefix = false;
    for (const auto& r : stream_generate(model(), tokenizer(), prompt, options)) ids.push_back(r.token);
    return ids;
  }
  // Every response of every request, by uid.
  static std::map<int64_t, std::vector<BatchResponse>> drain(BatchGenerator& batch) {
    std::map<int64_t, std::vector<BatchResponse>> all;
    while (!batch.idle()) {
      for (auto& r : batch.next().responses) all[r.uid].push_back(std::move(r));
    }
    return all;
  }
  static Ids tokens(const std::vector<BatchResponse>& responses) {
    Ids ids;
    for (const auto& r : responses) ids.push_back(r.response.token);
    return ids;
  }

  static std::string folder_;
  static std::unique_ptr<Loaded> loaded_;
};
std::string BatchTest::folder_;
std::unique_ptr<Loaded> BatchTest::loaded_;

TEST_F(BatchTest, APlainAndAPenalisedRequestAreEachRight) {
  BatchGenerator batch(model(), tokenizer());
  const Ids prompt = ids_from(1, 12), other = ids_from(50, 3);
  const GenerateOptions plain = {.max_tokens = 20};
  GenerateOptions penalised = plain;
  penalised.logits_processors = make_logits_processors({.repetition_penalty = 2.0f});
  const int64_t a = batch.insert(prompt, plain), b = batch.insert(other, penalised);
  const auto all = drain(batch);
  EXPECT_EQ(tokens(all.at(a)), alone(prompt, plain));
  EXPECT_EQ(tokens(all.at(b)), alone(other, penalised));
  EXPECT_NE(tokens(all.at(b)), alone(other, plain));
}

TEST_F(BatchTest, RowsOfDifferentLengthsAndOnePastItsWindowAreAsIfAlone) {
  // Windows of 16 by max_kv_size, and of the model's own: the prompt of 12 leaves them behind, the one of 3 does not.
  io::Json windowed = test::tiny_config("gemma3_text");
  windowed.update({{"vocab_size", 256}, {"sliding_window", 16}, {"sliding_window_pattern", 2}, {"eos_token_id", 3}});
  const std::string folder = test::write_random_model({.config = windowed, .bits = 4, .dtype = DType::bf16});
  {
    const Loaded gemma = load(folder, {.threads = 2});
    for (const Loaded* loaded : {static_cast<const Loaded*>(loaded_.get()), &gemma}) {
      GenerateOptions options{.max_tokens = 12, .sampler = {.temp = 1}, .seed = 5, .full_logprobs = true};
      if (loaded != &gemma) options.cache.max_kv_size = 16;
      const std::vector<Ids> prompts = {ids_from(1, 12), ids_from(50, 3)};
      std::vector<std::vector<std::vector<float>>> alone;
      for (const Ids& prompt : prompts) {
        auto& rows = alone.emplace_back();
        for (const auto& r : stream_generate(loaded->model, loaded->tokenizer, prompt, options)) {
          rows.push_back(r.logprobs);
        }
        ASSERT_EQ(rows.size(), 12u);
      }
      BatchGenerator batch(loaded->model, loaded->tokenizer);
      std::map<int64_t, size_t> index;
      for (size_t i = 0; i < prompts.size(); ++i) index[batch.insert(prompts[i], options)] = i;
      const auto all = drain(batch);
      for (const auto& [uid, responses] : all) {
        ASSERT_EQ(responses.size(), 12u);
        for (size_t t = 0; t < 12; ++t) {
          ASSERT_EQ(responses[t].response.logprobs, alone[index.at(uid)][t]) << "prompt " << index.at(uid) << ", " << t;
        }
      }
    }
  }
  std::filesystem::remove_all(folder);
}

TEST_F(BatchTest, AThrowingProcessorFailsItsOwnRequest) {
  BatchGenerator batch(model(), tokenizer());
  const GenerateOptions plain = {.max_tokens = 10};
  GenerateOptions throwing = plain, poisoning = plain;
  int calls = 0;
  throwing.logits_processors = {make_logits_processor([&](std::span<const int32_t>, std::span<float>) {
    if (++calls == 3) throw std::runtime_error("the third call went wrong");
  })};
  poisoning.logits_processors = {make_logits_processor(
      [](std::span<const int32_t>, std::span<float> logits) { logits[7] = std::nanf(""); }, "my processor")};
  const int64_t a = batch.insert(ids_from(1, 5), plain), b = batch.insert(ids_from(2, 5), throwing),
                c = batch.insert(ids_from(3, 5), poisoning);
  const auto all = drain(batch);
  EXPECT_EQ(tokens(all.at(a)), alone(ids_from(1, 5), plain));
  ASSERT_EQ(all.at(b).size(), 3u);
  EXPECT_EQ(all.at(b).back().response.finish_reason, "error");
  EXPECT_STREQ(all.at(b).back().error->what(), "the third call went wrong");
  ASSERT_EQ(all.at(c).size(), 1u);
  EXPECT_NE(std::string(all.at(c)[0].error->what()).find("my processor"), std::string::npos);
  EXPECT_NE(std::string(all.at(c)[0].error->what()).find("NaN"), std::string::npos);
  const int64_t next = batch.insert(ids_from(1, 5), plain);
  EXPECT_EQ(tokens(drain(batch).at(next)), alone(ids_from(1, 5), plain));
}

TEST_F(BatchTest, TheSameRequestTwiceUsesWhatItKnows) {
  const Ids prompt = ids_from(9, 200);
  std::vector<GenerationResponse> last;
  for (int i = 0; i < 2; ++i) {
    Ids ids;
    for (const auto& r : stream_generate(model(), tokenizer(), prompt, {.max_tokens = 8})) {
      ids.push_back(r.token);
      if (r.finish_reason) last.push_back(r);
    }
    EXPECT_EQ(ids, alone(prompt, {.max_tokens = 8}));
  }
  EXPECT_EQ(last[1].cached_tokens, 199);  // one token is computed again
}

TEST_F(BatchTest, KnownPrefixesStayWithinTheirBudget) {
  engine::PrefixCache& prefixes = model().impl().prefix_cache();
  for (int32_t i = 0; i < 20; ++i) {
    BatchGenerator batch(model(), tokenizer());
    batch.insert(ids_from(i, 300), {.max_tokens = 2});
    drain(batch);
    EXPECT_GT(prefixes.bytes(), 0);
    EXPECT_LE(prefixes.bytes(), prefixes.byte_budget());
  }
  // What is left is what the budget allows, and letting go of it frees the blocks.
  const nn::KvPool& pool = model().impl().executor().kv_pool();
  EXPECT_EQ(pool.bytes_in_use(), prefixes.bytes());
  EXPECT_TRUE(prefixes.release(prefixes.bytes()));
  EXPECT_EQ(pool.bytes_in_use(), 0);
}

TEST_F(BatchTest, RunningRequestsShareTheBlocksOfACommonPrefix) {
  const nn::KvPool& pool = model().impl().executor().kv_pool();
  model().impl().prefix_cache().release(int64_t{1} << 40);
  const Ids prompt = ids_from(77, 620);
  const GenerateOptions options = {.max_tokens = 20};
  BatchGenerator one(model(), tokenizer()), four(model(), tokenizer());
  one.insert(prompt, options);
  while (one.next().responses.empty()) {
  }
  const int64_t alone_bytes = pool.bytes_in_use();
  drain(one);
  model().impl().prefix_cache().release(int64_t{1} << 40);
  std::vector<int64_t> uids;
  for (int i = 0; i < 4; ++i) uids.push_back(four.insert(prompt, options));
  size_t running = 0;
  while (running < 4) running = four.next().responses.size();
  EXPECT_LE(pool.bytes_in_use(), alone_bytes * 14 / 10);  // nine shared blocks, and one more for each
  const auto all = drain(four);
  EXPECT_GE(four.stats().cached_tokens, 3 * 576);
  for (const int64_t uid : uids) EXPECT_EQ(tokens(all.at(uid)).back(), alone(prompt, options).back());
}

TEST_F(BatchTest, ALongPromptDoesNotStallThoseThatDecode) {
  BatchGenerator batch(model(), tokenizer());
  const int64_t a = batch.insert(ids_from(1, 5), {.max_tokens = 30});
  while (batch.next().responses.empty()) {
  }
  const int64_t b = batch.insert(ids_from(2, 2000), {.max_tokens = 1, .reuse_prefix = false});
  int steps_beside = 0;
  while (!batch.idle()) {
    const BatchStep step = batch.next();
    const auto of = [&](int64_t uid) {
      return std::ranges::count_if(step.responses, [&](const auto& r) { return r.uid == uid; });
    };
    if (!step.prompts.empty() && step.prompts[0].uid == b && batch.stats().generation_tokens < 30) {
      EXPECT_EQ(of(a), 1);
      ++steps_beside;
    }
    if (of(b) > 0) break;
  }
  EXPECT_GE(steps_beside, 5);
}

TEST_F(BatchTest, ARequestThatCanNeverFitIsRefused) {
  BatchGenerator batch(model(), tokenizer(), {.kv_bytes = model().kv_bytes(256)});
  EXPECT_THROW(batch.insert(ids_from(1, 300), {.max_tokens = 1}), Error);
  EXPECT_THROW(batch.insert(ids_from(1, 10), {.max_tokens = 1000}), Error);
  EXPECT_TRUE(batch.idle());
  const int64_t uid = batch.insert(ids_from(1, 200), {.max_tokens = 20});
  EXPECT_EQ(drain(batch).at(uid).size(), 20u);
}

TEST_F(BatchTest, WrongOptionsAreRefusedAtTheCall) {
  EXPECT_THROW(BatchGenerator(model(), {.completion_batch_size = 0}), Error);
  EXPECT_THROW(BatchGenerator(model(), {.prefill_batch_size = 0}), Error);
  EXPECT_THROW(BatchGenerator(model(), {.kv_bytes = -1}), Error);
  BatchGenerator ids_only(model());
  EXPECT_THROW(ids_only.insert("text"), Error);
  EXPECT_THROW(ids_only.insert(Ids{40}, {.stop = {"x"}}), Error);
  EXPECT_THROW(ids_only.insert(Ids{}), Error);
  EXPECT_THROW(ids_only.insert(Ids{256}), Error);
  EXPECT_THROW(ids_only.insert(Ids{40}, {.logits_processors = {nullptr}}), Error);
  EXPECT_THROW(ids_only.extract_cache(5), Error);
  EXPECT_FALSE(ids_only.remove(5));
  const int64_t uid = ids_only.insert(Ids{40, 41}, {.max_tokens = 4});
  EXPECT_EQ(drain(ids_only).at(uid).size(), 4u);
}

TEST_F(BatchTest, CachesAreGivenAndTaken) {
  BatchGenerator batch(model(), tokenizer(), {.keep_caches = true});
  PromptCache given(model());
  generate(model(), tokenizer(), ids_from(1, 30), {.max_tokens = 0, .prompt_cache = &given});
  const int64_t uid = batch.insert(ids_from(31 * 7 - 6, 4), {.max_tokens = 6, .prompt_cache = &given});
  Ids ids = tokens(batch.next().responses);
  ASSERT_EQ(ids.size(), 1u);
  PromptCache running = batch.extract_cache(uid);
  EXPECT_EQ(running.size(), 35);
  EXPECT_EQ(given.size(), 30);  // continued on a copy
  const Ids rest = tokens(drain(batch).at(uid));
  ids.insert(ids.end(), rest.begin(), rest.end());
  PromptCache finished = batch.extract_cache(uid);
  EXPECT_EQ(finished.size(), 40);
  EXPECT_THROW(batch.extract_cache(uid), Error);
  EXPECT_EQ(running.trim(1), 1);
  // The copy of the running request goes on as the request did.
  const Ids last = {running.tokens().back()};
  EXPECT_EQ(running.trim(1), 1);
  Ids again;
  for (const auto& r : stream_generate(model(), tokenizer(), last, {.max_tokens = 6, .prompt_cache = &running})) {
    again.push_back(r.token);
  }
  EXPECT_EQ(again, ids);
}

TEST_F(BatchTest, LimitsAndCancellation) {
  BatchGenerator batch(model(), tokenizer());
  std::stop_source stop;
  const int64_t zero = batch.insert(Ids{40}, {.max_tokens = 0});
  const int64_t cancelled = batch.insert(Ids{41}, {.max_tokens = -1, .cancel = stop.get_token()});
  const int64_t late = batch.insert(
      Ids{42}, {.max_tokens = -1, .deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(30)});
  std::map<int64_t, BatchResponse> last;
  const auto start = std::chrono::steady_clock::now();
  while (!batch.idle()) {
    for (auto& r : batch.next().responses) {
      if (r.response.finish_reason) last[r.uid] = r;
    }
    if (last.contains(zero) && last.contains(late)) stop.request_stop();
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  }
  EXPECT_EQ(last.at(zero).response.finish_reason, "length");
  EXPECT_EQ(last.at(zero).response.generation_tokens, 0);
  EXPECT_EQ(last.at(cancelled).response.finish_reason, "cancelled");
  EXPECT_EQ(last.at(late).response.finish_reason, "deadline");
}

TEST_F(BatchTest, BatchGenerateKeepsTheOrderOfThePrompts) {
  const std::vector<Prompt> prompts = {Prompt(ids_from(1, 12)), Prompt("hello"), Prompt(ids_from(3, 40))};
  std::vector<GenerateOptions> options(3);
  for (int i = 0; i < 3; ++i) options[static_cast<size_t>(i)].max_tokens = 5 + 3 * i;
  const BatchResult result = batch_generate(model(), tokenizer(), prompts, options, {.keep_caches = true});
  ASSERT_EQ(result.caches.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.texts[i], generate(model(), tokenizer(), prompts[i], options[i]));
    EXPECT_EQ(result.token_ids[i].size(), 5 + 3 * i);
    EXPECT_EQ(result.logprobs[i].size(), 5 + 3 * i);
    EXPECT_EQ(result.finish_reasons[i], "length");
    EXPECT_FALSE(result.errors[i]);
  }
  EXPECT_EQ(result.stats.generation_tokens, 5 + 8 + 11);
  EXPECT_EQ(result.stats.prompt_tokens, 12 + 5 + 40);
  EXPECT_THROW(batch_generate(model(), tokenizer(), prompts, std::vector<GenerateOptions>(2)), Error);
  // One set of options for all: processors with state do not mix the requests up.
  const auto with_state = [&] {
    return GenerateOptions{.max_tokens = 12,
                           .logits_processors = {min_length(3), constrain(tokenizer(), {.kind = Grammar::Kind::regex,
                                                                                        .source = "[a-z]{2,9}!"})}};
  };
  const BatchResult shared = batch_generate(model(), tokenizer(), prompts, {with_state()});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(shared.errors[i]);
    EXPECT_EQ(shared.texts[i], generate(model(), tokenizer(), prompts[i], with_state()));
  }
}

TEST_F(BatchTest, ADraftModelNeedsTheSameVocabulary) {
  const std::string padded = test::write_random_model({.config = config_of(264), .bits = 4, .dtype = DType::bf16});
  const std::string swapped = test::write_random_model({.config = config_of(256), .bits = 4, .dtype = DType::bf16});
  io::Json tokenizer_json = io::read_json_file(swapped + "/tokenizer.json");
  tokenizer_json["model"]["vocab"]["a"] = 98;
  tokenizer_json["model"]["vocab"]["b"] = 97;
  io::write_text_file(swapped + "/tokenizer.json", tokenizer_json.dump());
  const Loaded good = load(padded), bad = load(swapped);
  GenerateOptions options = {.max_tokens = 12};
  const Ids prompt = ids_from(4, 20);
  const Ids plain = alone(prompt, options);
  options.speculation.draft_model = good.model;
  EXPECT_EQ(alone(prompt, options), plain);
  {  // the same with the padding on the other side
    GenerateOptions reversed{.max_tokens = 12, .reuse_prefix = false};
    const auto tokens_of = [&] {
      Ids ids;
      for (const auto& r : stream_generate(good.model, good.tokenizer, prompt, reversed)) ids.push_back(r.token);
      return ids;
    };
    const Ids alone = tokens_of();
    reversed.speculation.draft_model = model();
    EXPECT_EQ(tokens_of(), alone);
  }
  options.speculation.draft_model = bad.model;
  try {
    alone(prompt, options);
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("token 97"), std::string::npos) << e.what();
  }
  options.speculation = {.draft_model = good.model, .prompt_lookup = true};
  EXPECT_THROW(alone(prompt, options), Error);
  options.speculation = {.prompt_lookup = true, .num_draft_tokens = 49};
  EXPECT_THROW(alone(prompt, options), Error);
  std::filesystem::remove_all(padded);
  std::filesystem::remove_all(swapped);
}

}  // namespace
}  // namespace mlxlm
