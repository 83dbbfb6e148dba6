// Processors that know the tokens' text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "mlxlm/error.h"
#include "mlxlm/sampling.h"
#include "text/test_tokenizers.h"

namespace mlxlm {
namespace {

using io::Json;
using Ids = std::vector<int32_t>;

Tokenizer load(const std::string& json) {
  return Tokenizer::from_folder(text::TestFolder().write("tokenizer.json", json).path());
}

const std::vector<std::string> kAdded = {"<end>", "<x>"};

/// Tokens that cut "abc", " ab" and "éb" (bytes C3 A9 62) in many ways.
Tokenizer byte_level() {
  return load(text::tokenizer_json(text::bpe_model({"a", "b", "c", "ab", "bc", "abc", "ca", "cab", "bcab", "Ġ", "Ġa",
                                                    "bĠ", "cĠab", "Ã", "©", "aÃ", "©b", "Ã©", "aa"}),
                                   text::byte_level(), text::byte_level(), kAdded));
}

const std::vector<std::string> kPieces = {"a",  "b", "c",   "ab", "▁",  "▁a",     "▁ab",    "b▁",
                                          "▁▁", "é", "abc", "aé", "aa", "<0xC3>", "<0xA9>", "a▁b"};

Tokenizer pieces(const Json& decoder) {
  return load(text::tokenizer_json(text::bpe_model(kPieces, true), decoder, {}, kAdded));
}

Json metaspace() {
  return {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
}

int32_t id_of(const Tokenizer& tokenizer, const std::string& token) { return tokenizer.token_to_id(token).value(); }

std::vector<float> process(LogitsProcessor& processor, const Ids& tokens, size_t vocab) {
  std::vector<float> logits(vocab, 1.0f);
  processor.process(tokens, logits);
  return logits;
}

bool holds(const std::string& text, const std::vector<std::string>& forbidden) {
  return std::any_of(forbidden.begin(), forbidden.end(),
                     [&](const std::string& f) { return text.find(f) != std::string::npos; });
}

/// Random walks over what is admitted: a token is banned exactly where it would complete a forbidden text.
void expect_exact_bans(const Tokenizer& tokenizer, const std::vector<std::string>& forbidden) {
  std::mt19937 random(4);
  const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
  const int32_t eos = id_of(tokenizer, "<end>");
  const Ids prompt = {0, 1};  // "ab": what the prompt says is not what is generated
  const auto processor = forbid_strings(tokenizer, forbidden);
  int bans = 0;
  for (int walk = 0; walk < 60; ++walk) {
    processor->start({prompt, static_cast<int64_t>(vocab), {&eos, 1}});
    Ids generated, tokens = prompt;
    for (int step = 0; step < 25; ++step) {
      const auto logits = process(*processor, tokens, vocab);
      Ids admitted;
      for (size_t i = 0; i < vocab; ++i) {
        const auto id = static_cast<int32_t>(i);
        generated.push_back(id);
        const bool completes = holds(tokenizer.decode(generated), forbidden) && id != eos;
        generated.pop_back();
        ASSERT_EQ(std::isinf(logits[i]), completes) << tokenizer.decode(generated) << " + " << i;
        bans += completes;
        if (!completes && id != eos) admitted.push_back(id);
      }
      ASSERT_FALSE(admitted.empty());
      generated.push_back(admitted[random() % admitted.size()]);
      tokens.push_back(generated.back());
    }
  }
  EXPECT_GT(bans, 20);  // the walks do come close to the texts
}

TEST(ForbidStrings, BansExactlyWhatCompletesAText) {
  const std::vector<std::string> forbidden = {"abc", "bca", " ab", "éb", "cc", "aé", "abab", "<x>", "<end>"};
  expect_exact_bans(byte_level(), forbidden);
  expect_exact_bans(pieces(text::sentencepiece_decoder(true)), forbidden);
  expect_exact_bans(pieces(text::sentencepiece_decoder(false)), forbidden);
  expect_exact_bans(pieces(metaspace()), forbidden);
  expect_exact_bans(byte_level(), {"a"});
  expect_exact_bans(byte_level(), {"aabaa", "aabab"});
}

TEST(ForbidStrings, ACloneGoesItsOwnWay) {
  const Tokenizer tokenizer = byte_level();
  const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
  const auto processor = forbid_strings(tokenizer, {"abc"});
  processor->start({{}, static_cast<int64_t>(vocab), {}});
  const int32_t a = id_of(tokenizer, "a"), b = id_of(tokenizer, "b"), c = id_of(tokenizer, "c");
  process(*processor, {a}, vocab);
  const auto copy = processor->clone();
  EXPECT_TRUE(std::isinf(process(*copy, {a, b}, vocab)[static_cast<size_t>(c)]));
  EXPECT_FALSE(std::isinf(process(*processor, {a, a}, vocab)[static_cast<size_t>(c)]));
  EXPECT_TRUE(std::isinf(process(*processor, {a, a, b}, vocab)[static_cast<size_t>(c)]));
  EXPECT_FALSE(std::isinf(process(*processor, {c}, vocab)[static_cast<size_t>(c)]));  // a new, shorter history
}

TEST(ForbidStrings, RefusesWhatIsNoText) {
  const Tokenizer tokenizer = byte_level();
  EXPECT_THROW(forbid_strings(tokenizer, {""}), Error);
  EXPECT_THROW(forbid_strings(tokenizer, {"\xC3"}), Error);
  EXPECT_THROW(forbid_strings(tokenizer, {"a\xEF\xBF\xBD"}), Error);
  const Json word_piece = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  try {
    forbid_strings(load(text::tokenizer_json(text::bpe_model({"a"}), word_piece)), {"a"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  }
}

/// The only id left, or −1.
int32_t only(const std::vector<float>& logits) {
  int32_t id = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isinf(logits[i])) continue;
    if (id >= 0) return -1;
    id = static_cast<int32_t>(i);
  }
  return id;
}

TEST(ForcePrefix, WritesTheTextAndThenLetsGo) {
  const std::string text = "ab cé";
  const Tokenizer tokenizer = byte_level();
  const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
  const auto processor = force_prefix(tokenizer, text);
  Ids tokens = {0, 1, 2}, generated;
  processor->start({tokens, static_cast<int64_t>(vocab), {}});
  while (const auto forced = processor->forced_token(tokens)) {
    EXPECT_EQ(only(process(*processor->clone(), tokens, vocab)), *forced);
    tokens.push_back(*forced);
    generated.push_back(*forced);
  }
  EXPECT_EQ(tokenizer.decode(generated), text);
  EXPECT_EQ(process(*processor, tokens, vocab), std::vector<float>(vocab, 1.0f));
}

TEST(ForcePrefix, RefusesWhatTheTokenizerCannotWrite) {
  EXPECT_THROW(force_prefix(byte_level(), "xyz"), Error);
  const auto processor = force_prefix(byte_level(), "cab");
  EXPECT_THROW(processor->start({{}, 1, {}}), Error);  // a model whose vocabulary is smaller
}

/// What the budget does to this history: the id it forces, or −1.
int32_t forced_after(LogitsProcessor& processor, const Ids& tokens, size_t vocab) {
  const auto forced = processor.forced_token(tokens);
  const auto logits = process(*processor.clone(), tokens, vocab);
  EXPECT_EQ(only(logits), forced.value_or(-1));
  if (!forced) {
    EXPECT_EQ(logits, std::vector<float>(vocab, 1.0f));
  }
  return forced.value_or(-1);
}

TEST(ThinkingBudget, ForcesTheEndMarker) {
  const Tokenizer tokenizer =
      load(text::tokenizer_json(text::bpe_model({"a", "b"}), text::byte_level(), {}, {"<think>", "</think>"}));
  const int32_t a = 0, open = 2, close = 3;
  struct Step {
    Ids generated;
    int32_t forced;
  };
  const auto expect = [&](int64_t budget, const Ids& prompt, const std::vector<Step>& steps) {
    const auto processor = thinking_budget(tokenizer, budget);
    processor->start({prompt, 4, {}});
    for (const Step& step : steps) {
      Ids tokens = prompt;
      tokens.insert(tokens.end(), step.generated.begin(), step.generated.end());
      EXPECT_EQ(forced_after(*processor, tokens, 4), step.forced) << budget << " " << step.generated.size();
    }
  };
  // The model opens the section itself; after the end it may answer at length.
  expect(2, {a},
         {{{}, -1},
          {{open}, -1},
          {{open, a}, -1},
          {{open, a, a}, close},
          {{open, a, a, close}, -1},
          {{open, a, a, close, a, a, a, a}, -1}});
  // The prompt has opened it: what it holds already is not counted.
  expect(2, {open, a, a, a}, {{{}, -1}, {{a}, -1}, {{a, a}, close}, {{a, a, close}, -1}});
  expect(0, {open, a}, {{{}, close}, {{close}, -1}});
  // Sections of earlier turns are closed; the budget is for all of them together.
  expect(1, {open, a, close, a}, {{{}, -1}, {{open}, -1}, {{open, a}, close}, {{open, a, close, open}, close}});
  EXPECT_THROW(thinking_budget(tokenizer, -1), Error);
}

TEST(ThinkingBudget, AMarkerMayBeSeveralTokens) {
  const Tokenizer tokenizer = load(text::tokenizer_json(text::bpe_model({"t", "h", "o", "u", "g", "x"}),
                                                        text::byte_level(), {}, {"<|channel>", "<channel|>"}));
  const Ids prompt = tokenizer.encode("<|channel>x", false);  // another channel is not thinking
  const auto processor = thinking_budget(tokenizer, 0);
  processor->start({prompt, 8, {}});
  Ids tokens = prompt;
  EXPECT_EQ(forced_after(*processor, tokens, 8), -1);
  for (const int32_t id : tokenizer.encode("<|channel>thought", false)) {
    EXPECT_EQ(forced_after(*processor, tokens, 8), -1);
    tokens.push_back(id);
  }
  EXPECT_EQ(forced_after(*processor, tokens, 8), id_of(tokenizer, "<channel|>"));
}

TEST(ThinkingBudget, NeedsMarkers) { EXPECT_THROW(thinking_budget(byte_level(), 5), Error); }

}  // namespace
}  // namespace mlxlm
