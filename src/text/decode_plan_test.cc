#include "text/decode_plan.h"

#include <gtest/gtest.h>

#include "text/test_tokenizers.h"

namespace mlxlm::text {
namespace {

TEST(DecodePlan, KnownDecoders) {
  EXPECT_EQ(make_decode_plan(byte_level()).kind, DecodePlan::Kind::byte_level);
  const DecodePlan llama = make_decode_plan(sentencepiece_decoder(true));
  EXPECT_EQ(llama.kind, DecodePlan::Kind::pieces);
  EXPECT_TRUE(llama.byte_fallback);
  EXPECT_EQ(llama.strip_left, 1u);
  EXPECT_EQ(make_decode_plan(sentencepiece_decoder(false)).strip_left, 0u);
  EXPECT_EQ(make_decode_plan(nullptr).separator, " ");
}

TEST(DecodePlan, OtherDecodersAreLeftToTheCrate) {
  const io::Json regex = {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", "b"}};
  const io::Json word_piece = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  for (const io::Json& decoder : {regex, word_piece}) {
    EXPECT_EQ(make_decode_plan(decoder).kind, DecodePlan::Kind::whole) << decoder;
  }
  io::Json after_bytes = sentencepiece_decoder(false);
  std::swap(after_bytes["decoders"][0], after_bytes["decoders"][1]);
  EXPECT_EQ(make_decode_plan(after_bytes).kind, DecodePlan::Kind::whole);
}

TEST(DecodePlan, FallbackBytes) {
  EXPECT_EQ(fallback_byte("<0x0A>"), 10);
  EXPECT_EQ(fallback_byte("<0xff>"), 255);
  for (const char* token : {"<0x0G>", "<0x0A", "0x0A>x", "<0x0AB>", ""}) EXPECT_EQ(fallback_byte(token), -1) << token;
}

TEST(DecodePlan, ByteLevelMap) {
  const auto bytes_of = [](std::string_view token) {
    std::string bytes;
    append_byte_level(token, bytes);
    return bytes;
  };
  EXPECT_EQ(bytes_of("Ġhi"), " hi");
  EXPECT_EQ(bytes_of("Ċ"), "\n");
  EXPECT_EQ(bytes_of("Ń"), "\xAD");  // the last character of the map
  EXPECT_EQ(bytes_of("ÿ"), "\xFF");
  EXPECT_EQ(bytes_of("Ā"), std::string(1, '\0'));
  EXPECT_EQ(bytes_of("●"), "●");  // outside the map: taken as it is, all of it
  EXPECT_EQ(bytes_of("Ġ●"), "Ġ●");
  EXPECT_EQ(bytes_of("a b"), "a b");
}

}  // namespace
}  // namespace mlxlm::text
