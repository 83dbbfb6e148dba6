// The ids that end a text: those of config.json, generation_config.json, the tokenizer and the request, on every path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "mlxlm/mlxlm.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

using Ids = std::vector<int32_t>;

/// config.json names 3 and 5, generation_config.json 4, the tokenizer 6; a request may add 7. All are control
/// characters, which these texts do not have otherwise.
class Eos : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    io::Json config = test::tiny_config("llama");
    config["vocab_size"] = 256;
    config["eos_token_id"] = {3, 5};
    folder_ = test::write_random_model({.config = config, .bits = 4, .dtype = DType::bf16, .seed = 5});
    io::write_text_file(folder_ + "/generation_config.json", R"({"eos_token_id": 4})");
    io::Json tokenizer = io::read_json_file(folder_ + "/tokenizer_config.json");
    tokenizer["eos_token"] = "Ć";  // how byte-level BPE writes the byte 6
    io::write_text_file(folder_ + "/tokenizer_config.json", tokenizer.dump());
    loaded_ = std::make_unique<Loaded>(load(folder_, {.threads = 1}));
  }
  static void TearDownTestSuite() {
    loaded_.reset();
    std::filesystem::remove_all(folder_);
  }

  static constexpr const char* kPrompt = "hello";
  static constexpr int32_t kOfTheRequest = 7;

  /// Two times A, then this id.
  static std::vector<std::shared_ptr<LogitsProcessor>> forcing(int32_t last) {
    return {make_logits_processor([last](std::span<const int32_t> tokens, std::span<float> logits) {
      logits[static_cast<size_t>(tokens.size() < 5 + 2 ? 'A' : last)] += 1000;
    })};
  }
  static GenerateOptions options(int32_t last) {
    return {.max_tokens = 20, .logits_processors = forcing(last), .extra_eos_token_ids = {kOfTheRequest}};
  }

  static std::string folder_;
  static std::unique_ptr<Loaded> loaded_;
};
std::string Eos::folder_;
std::unique_ptr<Loaded> Eos::loaded_;

TEST_F(Eos, IsTheUnionOfAllFiles) {
  EXPECT_EQ(loaded_->model.eos_token_ids(), (Ids{3, 4, 5, 6}));
  EXPECT_EQ(loaded_->tokenizer.eos_token_ids(), (Ids{6}));
}

/// What one path makes of a request.
struct Answer {
  std::string text, finish_reason;
  bool operator==(const Answer&) const = default;
};
void PrintTo(const Answer& a, std::ostream* out) { *out << "'" << a.text << "', " << a.finish_reason; }

TEST_F(Eos, EachEndsEveryPathUnseen) {
  const auto streamed = [](int32_t last, const std::function<void(GenerateOptions&)>& change = {}) {
    GenerateOptions o = options(last);
    if (change) change(o);
    Answer answer;
    for (const auto& r : stream_generate(loaded_->model, loaded_->tokenizer, kPrompt, o)) {
      answer.text += r.text;
      answer.finish_reason = r.finish_reason.value_or("");
      EXPECT_LE(r.generation_tokens, 3);
    }
    return answer;
  };
  for (const int32_t last : {3, 4, 5, 6, kOfTheRequest}) {
    SCOPED_TRACE(last);
    const Answer expected = {"AA", "stop"};
    EXPECT_EQ(streamed(last), expected);
    EXPECT_EQ(generate(loaded_->model, loaded_->tokenizer, kPrompt, options(last)), "AA");
    EXPECT_EQ(streamed(last, [](GenerateOptions& o) { o.speculation = {.prompt_lookup = true}; }), expected);
    EXPECT_EQ(streamed(last, [](GenerateOptions& o) { o.speculation = {.draft_model = loaded_->model}; }), expected);
    EXPECT_EQ(streamed(last, [](GenerateOptions& o) { o.max_tokens = 3; }), expected) << "exactly at the limit";
    EXPECT_EQ(streamed(last, [](GenerateOptions& o) { o.max_tokens = -1; }), expected);
    EXPECT_EQ(streamed(last, [](GenerateOptions& o) { o.stop = {"B"}; }), expected);
    PromptCache cache(loaded_->model);
    EXPECT_EQ(streamed(last, [&](GenerateOptions& o) { o.prompt_cache = &cache; }), expected);
    EXPECT_EQ(cache.tokens().back(), last) << "the history has it";

    BatchGenerator batch(loaded_->model, loaded_->tokenizer);
    batch.insert(kPrompt, options(last));
    Answer in_batch;
    while (!batch.idle()) {
      for (const auto& r : batch.next().responses) {
        in_batch.text += r.response.text;
        in_batch.finish_reason = r.response.finish_reason.value_or("");
      }
    }
    EXPECT_EQ(in_batch, expected);
    const BatchResult result = batch_generate(loaded_->model, loaded_->tokenizer, {kPrompt, kPrompt}, {options(last)});
    for (const size_t i : {0u, 1u}) {
      EXPECT_EQ((Answer{result.texts[i], result.finish_reasons[i]}), expected);
      EXPECT_EQ(result.token_ids[i], (Ids{'A', 'A'}));
    }
    if (last == kOfTheRequest) continue;  // LanguageModel takes none
    LanguageModel whole(folder_, {.load = {.threads = 1}});
    LanguageModelRequest request{.max_tokens = 20, .logits_processors = forcing(last)};
    for (const GenerationOutput& output :
         {whole.generate(kPrompt, request), whole.chat({{"user", kPrompt}}, request)}) {
      EXPECT_EQ((Answer{output.text, output.finish_reason}), expected);
    }
    Answer by_callback;
    whole.stream_generate(kPrompt, request, [&](const StreamingOutput& output) {
      by_callback.text += output.text;
      by_callback.finish_reason = output.finish_reason.value_or("");
      return true;
    });
    EXPECT_EQ(by_callback, expected);
  }
}

TEST_F(Eos, LetsGoOfTextThatWasHeldBack) {
  GenerateOptions o = options(3);
  o.stop = {"AAB"};  // AA may be its beginning
  std::string text;
  for (const auto& r : stream_generate(loaded_->model, loaded_->tokenizer, kPrompt, o)) text += r.text;
  EXPECT_EQ(text, "AA");
}

// With these logits: an EOS .4, the newline .3, A .16, B .14.
std::shared_ptr<LogitsProcessor> four_tokens(int32_t first) {
  return make_logits_processor([first](std::span<const int32_t>, std::span<float> logits) {
    std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
    const std::pair<int32_t, float> row[] = {{first, 0.4f}, {'\n', 0.3f}, {'A', 0.16f}, {'B', 0.14f}};
    for (const auto& [id, p] : row) logits[static_cast<size_t>(id)] = std::log(p);
  });
}

TEST_F(Eos, XtcNeverRemovesThemNorTheNewline) {
  const auto drawn = [](int32_t first, const Ids& special = {}) {
    std::set<int32_t> ids;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const GenerateOptions o{.max_tokens = 1,
                              .sampler = {.temp = 1, .xtc_probability = 1, .xtc_threshold = 0.1f},
                              .xtc_special_tokens = special,
                              .logits_processors = {four_tokens(first)},
                              .seed = seed,
                              .extra_eos_token_ids = {kOfTheRequest}};
      for (const auto& r : stream_generate(loaded_->model, loaded_->tokenizer, kPrompt, o)) ids.insert(r.token);
    }
    return ids;
  };
  for (const int32_t id : {3, 4, 5, 6, kOfTheRequest}) EXPECT_EQ(drawn(id), (std::set<int32_t>{id, '\n', 'B'})) << id;
  EXPECT_EQ(drawn('C'), (std::set<int32_t>{'\n', 'B'})) << "an ordinary token goes";
  EXPECT_EQ(drawn('C', {'A'}), (std::set<int32_t>{'\n', 'A', 'B'})) << "a token that the request names stays";
}

}  // namespace
}  // namespace mlxlm
