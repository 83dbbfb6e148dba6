// A request gives the same tokens, log-probabilities and text however it is run: alone or in a batch, in any chunks, on
// any number of threads, from a cold, warm or reloaded cache, with and without speculation.
//
// MLXLM_RANDOM_REQUESTS sets how many random requests are tried (docs/reproducibility.md has the long run).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/philox.h"
#include "engine/request.h"
#include "engine/response_builder.h"
#include "engine/scheduler.h"
#include "properties/random_requests.h"
#include "support/random_model.h"

namespace mlxlm::test {
namespace {

uint64_t number_of_requests() {
  const char* text = std::getenv("MLXLM_RANDOM_REQUESTS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 300;
}

/// Guesses from a list of what will really follow, each shifted by `error`.
class KnownFuture : public engine::DraftSource {
 public:
  KnownFuture(std::vector<int32_t> history, int32_t error) : all_(std::move(history)), error_(error) {}
  std::vector<int32_t> propose(std::span<const int32_t> history, int64_t max,
                               std::span<const std::shared_ptr<LogitsProcessor>> /*processors*/) override {
    std::vector<int32_t> guess;
    for (size_t i = history.size(); i < all_.size() && static_cast<int64_t>(guess.size()) < max; ++i) {
      guess.push_back((all_[i] + error_) % 256);
    }
    return guess;
  }
  double cost_of_a_guess() const override { return -1; }  // so cheap that the most are made

 private:
  std::vector<int32_t> all_;
  int32_t error_;
};

struct Models {
  std::string folder;
  Loaded two_threads, one_thread, three_threads;

  explicit Models(const RandomModelOptions& options)
      : folder(write_random_model(options)),
        two_threads(load(folder, {.threads = 2})),
        one_thread(load(folder, {.threads = 1})),
        three_threads(load(folder, {.threads = 3})) {}
  ~Models() { std::filesystem::remove_all(folder); }
};

io::Json small_config(const std::string& model_type) {
  io::Json config = tiny_config(model_type);
  config["vocab_size"] = 256;
  config["head_dim"] = 32;
  config["num_attention_heads"] = 2;
  config["num_key_value_heads"] = 1;
  config["max_position_embeddings"] = 2048;
  config["eos_token_id"] = 3;
  if (model_type == "gemma3_text") config.update({{"sliding_window", 24}, {"sliding_window_pattern", 2}});
  return config;
}

class AnyWay : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    for (const char* type : {"llama", "gemma3_text"}) {
      models_[type] =
          std::make_unique<Models>(RandomModelOptions{.config = small_config(type), .bits = 4, .dtype = DType::bf16});
    }
    draft_ = std::make_unique<Models>(
        RandomModelOptions{.config = small_config("llama"), .bits = 8, .dtype = DType::bf16, .seed = 9});
  }
  static void TearDownTestSuite() {
    models_.clear();
    draft_.reset();
  }

  Models& models() { return *models_[GetParam()]; }

  static Outcome run(const Loaded& loaded, const RandomRequest& request,
                     const std::function<void(GenerateOptions&)>& change = {}) {
    Outcome outcome;
    GenerateOptions options = options_for(request, loaded.tokenizer, outcome.calls);
    if (change) change(options);
    for (const auto& r : stream_generate(loaded.model, loaded.tokenizer, request.prompt, options)) add(outcome, r);
    return outcome;
  }

  // With a draft of the test's own, which the public options have no place for.
  static Outcome run_with_draft(const Loaded& loaded, const RandomRequest& request,
                                std::unique_ptr<engine::DraftSource> draft, int64_t most,
                                GenerationResponse* last = nullptr) {
    Outcome outcome;
    const GenerateOptions options = options_for(request, loaded.tokenizer, outcome.calls);
    PromptCache cache(loaded.model, options.cache);
    cache.state().tokens = request.prompt;
    engine::SequenceRequest sequence = engine::make_request(loaded.model, options, *options.seed, cache.state());
    sequence.draft = std::move(draft);
    sequence.max_draft_tokens = most;
    engine::Scheduler scheduler(loaded.model.shared_impl(), {});
    scheduler.add(std::move(sequence));
    engine::ResponseBuilder responses(&loaded.tokenizer, options, static_cast<int64_t>(request.prompt.size()), 0);
    while (outcome.finish_reason.empty()) {
      for (const auto& emission : scheduler.step()) {
        if (emission.error) std::rethrow_exception(emission.error);
        add(outcome, responses.add(emission));
      }
    }
    if (last != nullptr) *last = responses.response();
    return outcome;
  }

  static std::unordered_map<std::string, std::unique_ptr<Models>> models_;
  static std::unique_ptr<Models> draft_;
};
std::unordered_map<std::string, std::unique_ptr<Models>> AnyWay::models_;
std::unique_ptr<Models> AnyWay::draft_;

TEST_P(AnyWay, Alone) {
  for (uint64_t i = 0; i < number_of_requests(); ++i) {
    const RandomRequest request = random_request(i);
    SCOPED_TRACE(request.describe());
    const Outcome plain = run(models().two_threads, request);
    ASSERT_FALSE(plain.tokens.empty());
    const auto draw = [&](int64_t most, uint32_t which) {
      return 1 + static_cast<int>(uniform_draw(i, which, DrawPurpose::user, 1) * static_cast<double>(most));
    };
    EXPECT_EQ(plain, run(models().one_thread, request, [&](auto& o) { o.prefill_step_size = draw(9, 0); }));
    EXPECT_EQ(plain, run(models().three_threads, request, [&](auto& o) { o.prefill_step_size = draw(70, 1); }));
    for (int repeat = 0; repeat < 2; ++repeat) {  // the second time the prefix is known
      EXPECT_EQ(plain, run(models().two_threads, request, [](auto& o) { o.reuse_prefix = true; }));
    }
    EXPECT_EQ(plain, run(models().two_threads, request,
                         [&](auto& o) { o.speculation = {.prompt_lookup = true, .num_draft_tokens = draw(48, 2)}; }));
    EXPECT_EQ(plain, run(models().two_threads, request, [&](auto& o) {
                o.speculation = {.draft_model = draft_->two_threads.model, .num_draft_tokens = draw(48, 3)};
              }));
    EXPECT_EQ(plain, run(models().two_threads, request, [&](auto& o) {
                o.speculation = {.draft_model = models().one_thread.model, .num_draft_tokens = draw(8, 4)};
              }));
    std::vector<int32_t> future = request.prompt;
    future.insert(future.end(), plain.tokens.begin(), plain.tokens.end());
    for (const int32_t error : {0, 1}) {
      EXPECT_EQ(plain, run_with_draft(models().two_threads, request, std::make_unique<KnownFuture>(future, error),
                                      draw(48, 5)));
    }
    if (HasFailure()) return;
  }
}

// The hardest round: every guess is wrong, past a window far smaller than the text.
TEST_P(AnyWay, WithADraftThatIsAlwaysWrongInASmallWindow) {
  io::Json config = small_config(GetParam());
  const bool of_model = config.contains("sliding_window");  // else by max_kv_size
  if (of_model) config["sliding_window"] = 8;
  const Models small({.config = config, .bits = 4, .dtype = DType::bf16});
  for (const float temp : {0.0f, 1.0f}) {
    RandomRequest request;
    request.prompt = random_request(1).prompt;
    request.options = {.max_tokens = 40, .sampler = {.temp = temp}, .seed = 4};
    if (!of_model) request.options.cache.max_kv_size = 8;
    const Outcome plain = run(small.two_threads, request);
    ASSERT_EQ(plain.tokens.size(), 40u);
    std::vector<int32_t> future = request.prompt;
    future.insert(future.end(), plain.tokens.begin(), plain.tokens.end());
    for (const int64_t most : {1, 2, 7, 9, 48}) {
      GenerationResponse last;
      auto draft = std::make_unique<KnownFuture>(future, 1);
      EXPECT_EQ(plain, run_with_draft(small.two_threads, request, std::move(draft), most, &last)) << most;
      EXPECT_GE(last.draft_tokens, 38) << "guessed at every step";
      EXPECT_EQ(last.accepted_tokens, 0);
    }
  }
}

TEST_P(AnyWay, FromACacheOfTheBeginning) {
  const Loaded& loaded = models().two_threads;
  const auto file = (std::filesystem::path(models().folder) / "cache.safetensors").string();
  for (uint64_t i = 0; i < number_of_requests(); ++i) {
    const RandomRequest request = random_request(i);
    if (request.prompt.size() < 2) continue;
    SCOPED_TRACE(request.describe());
    const Outcome plain = run(loaded, request);
    const auto cut = static_cast<std::ptrdiff_t>(1 + uniform_draw(i, 0, DrawPurpose::user, 2) *
                                                         static_cast<double>(request.prompt.size() - 1));
    PromptCache cache(loaded.model, request.options.cache);
    const std::vector<int32_t> begin(request.prompt.begin(), request.prompt.begin() + cut);
    generate(loaded.model, loaded.tokenizer, begin, {.max_tokens = 0, .prompt_cache = &cache});
    PromptCache forked = cache.fork();
    cache.save(file);
    PromptCache reloaded = load_prompt_cache(loaded.model, file).cache;
    RandomRequest rest = request;
    rest.prompt.erase(rest.prompt.begin(), rest.prompt.begin() + cut);
    for (PromptCache* from : {&cache, &forked, &reloaded}) {
      EXPECT_EQ(plain, run(loaded, rest, [&](auto& o) {
                  o.cache = {};
                  o.prompt_cache = from;
                }));
      EXPECT_EQ(from->size(), static_cast<int64_t>(request.prompt.size() + plain.tokens.size()));
    }
    if (HasFailure()) return;
  }
}

// Eight requests at a time that join and leave at random, under a budget that makes them wait and give up memory.
TEST_P(AnyWay, InABatch) {
  const Loaded& loaded = models().three_threads;
  const uint64_t n = number_of_requests();
  const int64_t budget = loaded.model.kv_bytes(64) * 6;
  BatchGenerator batch(loaded.model, loaded.tokenizer, {.completion_batch_size = 8, .kv_bytes = budget});
  std::vector<Outcome> outcomes(n);
  std::vector<bool> removed(n);
  std::unordered_map<int64_t, uint64_t> index_of;
  uint64_t inserted = 0, round = 0;
  while (inserted < n || !batch.idle()) {
    const auto roll = [&](uint32_t which) { return uniform_draw(round, which, DrawPurpose::user, 3); };
    ++round;
    while (inserted < n && index_of.size() < 12 && roll(static_cast<uint32_t>(inserted)) < 0.5) {
      const RandomRequest request = random_request(inserted);
      GenerateOptions options = options_for(request, loaded.tokenizer, outcomes[inserted].calls);
      options.reuse_prefix = inserted % 2 == 0;
      if (inserted % 3 == 0) options.speculation = {.prompt_lookup = true, .num_draft_tokens = 5};
      if (inserted % 7 == 0) options.speculation = {.draft_model = draft_->one_thread.model};
      index_of[batch.insert(request.prompt, options)] = inserted;
      ++inserted;
    }
    if (!index_of.empty() && roll(1u << 20) < 0.01) {  // one of them is given up
      const auto victim = *index_of.begin();
      EXPECT_TRUE(batch.remove(victim.first));
      removed[victim.second] = true;
      index_of.erase(victim.first);
    }
    for (const BatchResponse& r : batch.next().responses) {
      ASSERT_FALSE(r.error) << r.error->what();
      add(outcomes[index_of.at(r.uid)], r.response);
      if (r.response.finish_reason) index_of.erase(r.uid);
    }
  }
  for (uint64_t i = 0; i < n; ++i) {
    if (removed[i]) continue;
    const RandomRequest request = random_request(i);
    SCOPED_TRACE(request.describe());
    ASSERT_EQ(run(loaded, request), outcomes[i]);
  }
  EXPECT_GT(batch.stats().accepted_tokens, 0);
  EXPECT_GT(batch.stats().preemptions, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, AnyWay, testing::Values("llama", "gemma3_text"),
                         [](const auto& type) { return std::string(type.param); });

}  // namespace
}  // namespace mlxlm::test
