#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "mlxlm/error.h"
#include "text/test_tokenizers.h"

namespace mlxlm::text {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

using Pieces = std::vector<std::string>;

/// One piece per id and a last one for the end; checks that joined they are the decoding of all ids at once.
Pieces stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special = false) {
  StreamingDetokenizer detokenizer(tokenizer, skip_special);
  Pieces pieces;
  for (const int32_t id : ids) {
    detokenizer.add_token(id);
    pieces.push_back(detokenizer.take_segment());
    EXPECT_FALSE(find_invalid_utf8(pieces.back()));
  }
  detokenizer.finalize();
  pieces.push_back(detokenizer.take_segment());
  EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::string()), tokenizer.decode(ids, skip_special));
  return pieces;
}

Tokenizer load(const std::string& json) {
  return Tokenizer::from_folder(TestFolder().write("tokenizer.json", json).path());
}

Tokenizer byte_level_tokenizer() {
  //              0     1     2      3    4      5   6    7
  return load(tokenizer_json(bpe_model({"ðŁ", "ĺĢ", "Ġx", "§", "Ġhi", "x", "Ġ", "äĽ"}), byte_level(), byte_level(),
                             {"<|end|>", "●"}));  // 8, 9
}

TEST(Detokenizer, CharacterAcrossTokens) {
  EXPECT_EQ(stream(byte_level_tokenizer(), {0, 1, 2}), (Pieces{"", "😀", " x", ""}));
}

TEST(Detokenizer, StrayByteIsOneReplacement) {
  EXPECT_EQ(stream(byte_level_tokenizer(), {3, 2}), (Pieces{kBad, " x", ""}));
  EXPECT_EQ(stream(byte_level_tokenizer(), {0, 2}), (Pieces{"", kBad + " x", ""}));
  EXPECT_EQ(stream(byte_level_tokenizer(), {0}), (Pieces{"", kBad}));
}

TEST(Detokenizer, ByteLevelKeepsALeadingSpace) {
  EXPECT_EQ(stream(byte_level_tokenizer(), {4}), (Pieces{" hi", ""}));
  EXPECT_EQ(stream(byte_level_tokenizer(), {6, 6, 5}), (Pieces{" ", " ", "x", ""}));
}

TEST(Detokenizer, AddedTokensArePrinted) {
  EXPECT_EQ(stream(byte_level_tokenizer(), {9, 5, 8}), (Pieces{"●", "x", "<|end|>", ""}));
  EXPECT_EQ(stream(byte_level_tokenizer(), {0, 8}), (Pieces{"", kBad + "<|end|>", ""}));
  EXPECT_EQ(stream(byte_level_tokenizer(), {9, 5, 8}, true), (Pieces{"", "x", "", ""}));
}

TEST(Detokenizer, IdsOutsideTheVocabulary) {
  EXPECT_EQ(stream(byte_level_tokenizer(), {5, 4000000, 5}), (Pieces{"x", "", "x", ""}));
  const Tokenizer tokenizer = byte_level_tokenizer();
  EXPECT_THROW(StreamingDetokenizer(tokenizer).add_token(-1), Error);
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{5, -3}), Error);
}

Tokenizer sentencepiece_tokenizer(bool strip) {
  return load(tokenizer_json(
      bpe_model({"▁", "▁leading", "▁x", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0xA7>", "a", "<0x20>"}, true),
      sentencepiece_decoder(strip)));
}

TEST(Detokenizer, LeadingSpaceOnlyWhereTheDecoderDropsIt) {
  EXPECT_EQ(stream(sentencepiece_tokenizer(true), {0, 1, 2}), (Pieces{"", " leading", " x", ""}));
  EXPECT_EQ(stream(sentencepiece_tokenizer(false), {0, 1, 2}), (Pieces{" ", " leading", " x", ""}));
  EXPECT_EQ(stream(sentencepiece_tokenizer(true), {8, 2}), (Pieces{"a", " x", ""}));
  EXPECT_EQ(stream(sentencepiece_tokenizer(true), {9, 9, 8}), (Pieces{"", " ", "a", ""}));
}

TEST(Detokenizer, ByteFallback) {
  EXPECT_EQ(stream(sentencepiece_tokenizer(true), {3, 4, 5, 6, 2}), (Pieces{"", "", "", "😀", " x", ""}));
  EXPECT_EQ(stream(sentencepiece_tokenizer(true), {7, 2}), (Pieces{kBad, " x", ""}));
  EXPECT_EQ(stream(sentencepiece_tokenizer(true), {3, 4, 2}), (Pieces{"", "", kBad + kBad + " x", ""}));
  EXPECT_EQ(stream(sentencepiece_tokenizer(true), {3}), (Pieces{"", kBad}));
}

TEST(Detokenizer, Metaspace) {
  const auto decoder = [](const char* scheme) {
    return io::Json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", true}};
  };
  const io::Json model = bpe_model({"▁a", "▁b", "▁"});
  EXPECT_EQ(stream(load(tokenizer_json(model, decoder("always"))), {0, 1, 2, 0}), (Pieces{"a", " b", " ", " a", ""}));
  EXPECT_EQ(stream(load(tokenizer_json(model, decoder("never"))), {0, 1}), (Pieces{" a", " b", ""}));
}

TEST(Detokenizer, WithoutADecoderTokensAreWords) {
  EXPECT_EQ(stream(load(tokenizer_json(bpe_model({"a", "b"}), nullptr)), {0, 1, 0}), (Pieces{"a", " b", " a", ""}));
}

TEST(Detokenizer, DecodersLeftToTheCrate) {
  const io::Json decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  const Tokenizer tokenizer = load(tokenizer_json(bpe_model({"play", "##ing", "."}), decoder));
  EXPECT_EQ(stream(tokenizer, {0, 1, 2, 0}), (Pieces{"play", "ing", ".", " play", ""}));
}

TEST(Detokenizer, ResetStartsAgain) {
  const Tokenizer tokenizer = sentencepiece_tokenizer(true);
  StreamingDetokenizer detokenizer(tokenizer);
  detokenizer.add_token(2);
  detokenizer.add_token(3);
  detokenizer.reset();
  detokenizer.add_token(2);
  detokenizer.finalize();
  EXPECT_EQ(detokenizer.take_segment(), "x");
}

}  // namespace
}  // namespace mlxlm::text
