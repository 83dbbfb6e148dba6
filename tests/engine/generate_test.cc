// The public interface on a tiny random model: what stream_generate promises.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "base/test_errors.h"
#include "mlxlm/mlxlm.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using Ids = std::vector<int32_t>;

class Generate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    io::Json config = test::tiny_config("llama");
    config["vocab_size"] = 256;
    config["max_position_embeddings"] = 300;
    config["eos_token_id"] = 3;  // a control character: never in these texts unless it is asked for
    folder_ = test::write_random_model({.config = config, .bits = 4, .dtype = DType::bf16, .seed = 5});
    loaded_ = std::make_unique<Loaded>(load(folder_, {.threads = 2}));
  }
  static void TearDownTestSuite() {
    loaded_.reset();
    std::filesystem::remove_all(folder_);
  }

  static std::vector<GenerationResponse> run(const Prompt& prompt, const GenerateOptions& options) {
    std::vector<GenerationResponse> responses;
    for (const auto& r : stream_generate(loaded_->model, loaded_->tokenizer, prompt, options)) responses.push_back(r);
    return responses;
  }
  static Ids tokens(const std::vector<GenerationResponse>& responses) {
    Ids ids;
    for (const auto& r : responses) ids.push_back(r.token);
    return ids;
  }
  static std::string text(const std::vector<GenerationResponse>& responses) {
    std::string all;
    for (const auto& r : responses) all += r.text;
    return all;
  }
  static GenerateOptions sampled(int max_tokens) {
    return {.max_tokens = max_tokens, .sampler = {.temp = 1.5f}, .seed = 11};
  }

  static std::string folder_;
  static std::unique_ptr<Loaded> loaded_;
};
std::string Generate::folder_;
std::unique_ptr<Loaded> Generate::loaded_;

TEST_F(Generate, TheLastResponseAloneHasAReason) {
  const auto responses = run("hello", sampled(12));
  ASSERT_EQ(responses.size(), 12u);
  for (size_t i = 0; i + 1 < responses.size(); ++i) EXPECT_FALSE(responses[i].finish_reason);
  EXPECT_EQ(responses.back().finish_reason, "length");
  EXPECT_EQ(responses.back().generation_tokens, 12);
  EXPECT_EQ(responses.back().prompt_tokens, 5);
  EXPECT_GT(responses.back().prompt_tps, 0);
  EXPECT_GT(responses.back().peak_memory, 0);
  EXPECT_EQ(responses.back().seed, 11u);
}

TEST_F(Generate, StreamedTextIsTheDecodingOfAllTokens) {
  const auto responses = run("hello", sampled(60));
  EXPECT_EQ(text(responses), loaded_->tokenizer.decode(tokens(responses)));
  EXPECT_EQ(text(responses), generate(loaded_->model, loaded_->tokenizer, "hello", sampled(60)));
}

TEST_F(Generate, ASeedGivesTheSameTokensAndAnotherSeedOthers) {
  auto options = sampled(30);
  const Ids first = tokens(run("hello", options));
  EXPECT_EQ(first, tokens(run("hello", options)));
  options.prefill_step_size = 2;
  EXPECT_EQ(first, tokens(run("hello", options)));
  options.seed = 12;
  EXPECT_NE(first, tokens(run("hello", options)));
  options.seed.reset();
  const auto drawn = run("hello", options);
  options.seed = drawn.back().seed;  // the reported seed repeats the request
  EXPECT_EQ(tokens(drawn), tokens(run("hello", options)));
}

TEST_F(Generate, EosEndsUnseen) {
  const auto free = run("hello", sampled(30));
  const int32_t end = free[9].token;
  const auto first = static_cast<size_t>(
      std::find_if(free.begin(), free.end(), [&](const auto& r) { return r.token == end; }) - free.begin());
  auto options = sampled(30);
  options.extra_eos_token_ids = {end};
  const auto stopped = run("hello", options);
  ASSERT_EQ(stopped.size(), first + 1);
  EXPECT_EQ(stopped.back().token, end);
  EXPECT_EQ(stopped.back().finish_reason, "stop");
  Ids before = tokens(stopped);
  before.pop_back();
  EXPECT_EQ(text(stopped), loaded_->tokenizer.decode(before));
  options.max_tokens = static_cast<int>(first) + 1;  // also exactly at the limit
  EXPECT_EQ(run("hello", options).back().finish_reason, "stop");
  EXPECT_EQ(loaded_->model.eos_token_ids(), Ids{3});
}

TEST_F(Generate, AStopStringIsTrimmedWhereverTokensCutIt) {
  const std::string whole = generate(loaded_->model, loaded_->tokenizer, "hello", sampled(40));
  for (size_t start = 3; start + 3 < std::min<size_t>(whole.size(), 12); ++start) {
    const std::string stop = whole.substr(start, 3);
    if (static_cast<unsigned char>(stop.front() & 0xc0) == 0x80) continue;  // not the start of a character
    auto options = sampled(40);
    options.stop = {"never in the text", stop};
    const auto responses = run("hello", options);
    EXPECT_EQ(text(responses), whole.substr(0, whole.find(stop)));
    EXPECT_EQ(responses.back().finish_reason, "stop");
  }
}

TEST_F(Generate, ZeroTokensGiveOneEmptyResponse) {
  PromptCache cache(loaded_->model);
  const auto responses = run("hello", {.max_tokens = 0, .prompt_cache = &cache});
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].text, "");
  EXPECT_EQ(responses[0].token, -1);
  EXPECT_EQ(responses[0].generation_tokens, 0);
  EXPECT_EQ(responses[0].finish_reason, "length");
  EXPECT_EQ(cache.size(), 5);
}

TEST_F(Generate, WithoutALimitTheContextEndsIt) {
  const auto responses = run(Ids(280, 65), {.max_tokens = -1});
  EXPECT_EQ(responses.size(), 20u);
  EXPECT_EQ(responses.back().finish_reason, "length");
}

TEST_F(Generate, LogprobsAreADistribution) {
  const auto responses = run("hello", {.max_tokens = 3, .top_logprobs = 4, .full_logprobs = true});
  for (const auto& r : responses) {
    ASSERT_EQ(r.logprobs.size(), 256u);
    double sum = 0;
    for (const float x : r.logprobs) sum += std::exp(static_cast<double>(x));
    EXPECT_NEAR(sum, 1, 1e-5);
    ASSERT_EQ(r.top_logprobs.size(), 4u);
    EXPECT_EQ(r.top_logprobs[0].first, r.token);  // greedy
    EXPECT_EQ(r.top_logprobs[0].second, r.logprob);
    EXPECT_EQ(r.logprobs[static_cast<size_t>(r.token)], r.logprob);
  }
}

TEST_F(Generate, AForcedTokenIsTheSameBesideOtherProcessors) {
  // Alone, the grammar gives the only id that it admits without a pass; beside another it bans all others.
  const auto noop = [] { return make_logits_processor([](std::span<const int32_t>, std::span<float>) {}); };
  const auto grammar = [] {
    return constrain(loaded_->tokenizer, {.kind = Grammar::Kind::choice, .choices = {"yes, always", "no, never"}});
  };
  GenerateOptions options = sampled(30);
  options.top_logprobs = 3;
  options.full_logprobs = true;
  options.logits_processors = {grammar()};
  const auto expected = run("hello", options);
  ASSERT_GT(expected.size(), 9u);
  EXPECT_TRUE(text(expected) == "yes, always" || text(expected) == "no, never") << text(expected);
  const std::vector<std::shared_ptr<LogitsProcessor>> chains[] = {
      {grammar(), noop()}, {noop(), grammar()}, {min_length(2), grammar()}, {grammar(), ban_token_ids({'z'})}};
  for (const auto& chain : chains) {
    options.logits_processors = chain;
    const auto got = run("hello", options);
    ASSERT_EQ(tokens(got), tokens(expected));
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(got[i].text, expected[i].text);
      EXPECT_EQ(got[i].logprob, expected[i].logprob);
      EXPECT_EQ(got[i].logprobs, expected[i].logprobs);
      EXPECT_EQ(got[i].top_logprobs, expected[i].top_logprobs);
      EXPECT_EQ(got[i].finish_reason, expected[i].finish_reason);
    }
  }
  options.logits_processors = {grammar()};
  options.sampler_function = make_sampler(options.sampler);
  EXPECT_EQ(tokens(run("hello", options)), tokens(expected));
  // Where another processor bans the only id, the request fails: it is not written all the same.
  options.sampler_function = {};
  options.logits_processors = {grammar(), ban_token_ids({','})};
  EXPECT_THROW(run("hello", options), Error);
}

TEST_F(Generate, LogitsThatAreNoNumbersAreAnErrorThatSaysSo) {
  // A norm's weight that is not a number, as a damaged file may have.
  io::Json config = test::tiny_config("llama");
  config["vocab_size"] = 256;
  const std::string folder = test::write_random_model({.config = config, .seed = 5});
  {
    std::fstream file(folder + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    uint64_t header_size = 0;
    std::memcpy(&header_size, bytes.data(), 8);
    const io::Json header = io::Json::parse(bytes.substr(8, header_size));
    const auto begin = header["model.norm.weight"]["data_offsets"][0].get<uint64_t>();
    const float nan = std::nanf("");
    file.clear();
    file.seekp(static_cast<std::streamoff>(8 + header_size + begin));
    file.write(reinterpret_cast<const char*>(&nan), sizeof nan);
  }
  const Loaded damaged = load(folder, {.threads = 1});
  for (GenerateOptions options : {GenerateOptions{}, sampled(5)}) {
    for (const bool own_sampler : {false, true}) {
      if (own_sampler) options.sampler_function = make_sampler(options.sampler);
      const std::string message = message_of([&] { generate(damaged.model, damaged.tokenizer, "hello", options); });
      EXPECT_NE(message.find("position 5 hold NaN or +inf"), std::string::npos) << message;
    }
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Generate, APromptHasExactlyOneBos) {
  io::Json config = test::tiny_config("llama");
  config["vocab_size"] = 264;
  const std::string folder = test::write_random_model({.config = config, .bits = 4, .dtype = DType::bf16});
  io::Json tokenizer = io::read_json_file(folder + "/tokenizer.json");
  tokenizer["added_tokens"] = {{{"id", 256},
                                {"content", "<s>"},
                                {"special", true},
                                {"single_word", false},
                                {"lstrip", false},
                                {"rstrip", false},
                                {"normalized", false}}};
  tokenizer["post_processor"] = io::Json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}})");
  io::write_text_file(folder + "/tokenizer.json", tokenizer.dump());
  const std::string chat = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";
  io::write_text_file(folder + "/tokenizer_config.json",
                      io::Json{{"bos_token", "<s>"}, {"chat_template", chat}}.dump());
  {
    LanguageModel whole(folder, {.load = {.threads = 1}});
    const Model& model = whole.model();
    const auto ids_of = [&](const std::function<void(PromptCache&)>& generate) {
      PromptCache cache(model);
      generate(cache);
      return cache.tokens();
    };
    const Ids expected = {256, 'a', 'b'};
    for (const char* text : {"ab", "<s>ab"}) {
      EXPECT_EQ(ids_of([&](PromptCache& cache) {
                  generate(model, whole.tokenizer(), text, {.max_tokens = 0, .prompt_cache = &cache});
                }),
                expected);
      EXPECT_EQ(ids_of([&](PromptCache& cache) { whole.generate(text, {.max_tokens = 0, .prompt_cache = &cache}); }),
                expected);
      BatchGenerator batch(model, whole.tokenizer(), {.keep_caches = true});
      const int64_t uid = batch.insert(text, {.max_tokens = 0});
      while (!batch.idle()) batch.next();
      EXPECT_EQ(batch.extract_cache(uid).tokens(), expected);
    }
    EXPECT_EQ(whole.tokenizer().apply_chat_template({{"user", "ab"}}), expected);
    EXPECT_EQ(ids_of([&](PromptCache& cache) {
                whole.chat({{"user", "ab"}}, {.max_tokens = 0, .prompt_cache = &cache});
              }),
              expected);
  }
  std::filesystem::remove_all(folder);
}

TEST_F(Generate, ACacheContinuesWhereItStopped) {
  const Ids prompt = {72, 101, 108, 108, 111};
  const auto whole = run(prompt, {.max_tokens = 20});
  PromptCache cache(loaded_->model);
  const auto first = run(prompt, {.max_tokens = 8, .prompt_cache = &cache});
  EXPECT_EQ(cache.size(), 13);
  // The cache holds the prompt and the eight tokens; feed the same history in two parts instead.
  PromptCache parts(loaded_->model);
  run(Ids{72, 101}, {.max_tokens = 0, .prompt_cache = &parts});
  const auto rest = run(Ids{108, 108, 111}, {.max_tokens = 20, .prompt_cache = &parts});
  EXPECT_EQ(tokens(rest), tokens(whole));
  EXPECT_EQ(rest.back().prompt_tokens, 3);
  // Trim back to the prompt less one token, and go on.
  EXPECT_EQ(cache.trim(9), 9);
  EXPECT_EQ(tokens(run(Ids{111}, {.max_tokens = 20, .prompt_cache = &cache})), tokens(whole));
}

TEST_F(Generate, AnEarlyEndLeavesTheCacheWithWhatWasDelivered) {
  PromptCache cache(loaded_->model);
  {
    auto stream = stream_generate(loaded_->model, loaded_->tokenizer, "hello", {.prompt_cache = &cache});
    auto it = stream.begin();
    ++it;
    ++it;
  }
  EXPECT_EQ(cache.size(), 5 + 3);
  EXPECT_NO_THROW(run("x", {.max_tokens = 2, .prompt_cache = &cache}));
}

TEST_F(Generate, ACacheBelongsToOneRunningStream) {
  PromptCache cache(loaded_->model);
  const GenerateOptions options = {.prompt_cache = &cache};
  auto stream = stream_generate(loaded_->model, loaded_->tokenizer, "hello", options);
  stream.begin();
  EXPECT_THROW(stream_generate(loaded_->model, loaded_->tokenizer, "hello", options), Error);
  EXPECT_THROW(cache.trim(1), Error);
  const Loaded other = load(folder_, {.threads = 1});
  EXPECT_THROW(stream_generate(other.model, other.tokenizer, "hello", options), Error);
}

TEST_F(Generate, ProgressCoversThePrompt) {
  std::vector<std::pair<int64_t, int64_t>> calls;
  GenerateOptions options = {.max_tokens = 2, .prefill_step_size = 4, .reuse_prefix = false};
  options.prompt_progress = [&](int64_t done, int64_t total) { calls.emplace_back(done, total); };
  run(Ids(10, 65), options);
  EXPECT_EQ(calls, (std::vector<std::pair<int64_t, int64_t>>{{0, 10}, {4, 10}, {8, 10}, {10, 10}}));
}

TEST_F(Generate, CancellingEndsTheStream) {
  std::stop_source source;
  GenerateOptions options = sampled(1000);
  options.cancel = source.get_token();
  std::vector<GenerationResponse> responses;
  for (const auto& r : stream_generate(loaded_->model, loaded_->tokenizer, "hello", options)) {
    responses.push_back(r);
    if (responses.size() == 5) source.request_stop();
  }
  ASSERT_EQ(responses.size(), 6u);
  EXPECT_EQ(responses.back().finish_reason, "cancelled");
}

TEST_F(Generate, WrongRequestsAreRefusedAtTheCall) {
  const auto call = [&](const Prompt& prompt, const GenerateOptions& options) {
    EXPECT_THROW(stream_generate(loaded_->model, loaded_->tokenizer, prompt, options), Error);
  };
  call("", {});
  call(Ids{}, {});
  call(Ids{256}, {});
  call(Ids{-1}, {});
  call("x", {.max_tokens = -2});
  call("x", {.sampler = {.temp = -1}});
  call("x", {.sampler = {.top_k = 256}});
  call("x", {.stop = {""}});
  call("x", {.extra_eos_token_ids = {256}});
  call("x", {.prefill_step_size = 0});
  call("x", {.top_logprobs = -1});
}

TEST_F(Generate, ManyThreadsShareAModel) {
  const Ids expected = tokens(run("hello", sampled(20)));
  std::vector<Ids> got(4);
  std::vector<std::thread> threads;
  for (auto& ids : got) threads.emplace_back([&ids] { ids = tokens(run("hello", sampled(20))); });
  for (auto& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace mlxlm
