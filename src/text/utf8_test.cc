#include "text/utf8.h"

#include <gtest/gtest.h>

#include "mlxlm/error.h"

namespace mlxlm::text {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

std::string decode(std::string_view bytes, size_t cut, bool per_byte = false) {
  Utf8Stream stream;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += cut) {
    per_byte ? stream.append_per_byte(bytes.substr(i, cut), out) : stream.append(bytes.substr(i, cut), out);
    EXPECT_FALSE(find_invalid_utf8(out)) << "half a character after byte " << i;
  }
  stream.flush(out, per_byte);
  return out;
}

TEST(Utf8, ChecksEveryIllFormedKind) {
  EXPECT_FALSE(find_invalid_utf8("plain, é, 漢字, 😀, \x7F"));
  EXPECT_FALSE(find_invalid_utf8(std::string_view("a\0b", 3)));
  EXPECT_EQ(find_invalid_utf8("ab\xFFz"), 2u);           // never a byte of UTF-8
  EXPECT_EQ(find_invalid_utf8("ab\xA7"), 2u);            // continuation without a lead
  EXPECT_EQ(find_invalid_utf8("\xC0\xAF"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\xAF"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("a\xF0\x9F\x98"), 1u);     // cut
}

TEST(Utf8, RefusalNamesTheOffset) {
  try {
    require_utf8("ab\xFF", "prompt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "prompt: expected UTF-8, got the byte 0xFF at offset 2; convert the text to UTF-8 first");
    EXPECT_EQ(error.kind(), ErrorKind::invalid_value);
  }
}

TEST(Utf8, StreamDoesNotDependOnCuts) {
  const std::string text = "é漢😀 \xA7 x\xE4\xBD y\xF0\x9F\x98z\xED\xA0\x80\xC3";
  const std::string expected = "é漢😀 " + kReplacement + " x" + kReplacement + " y" + kReplacement + "z" + kReplacement +
                               kReplacement + kReplacement + kReplacement;
  for (size_t cut = 1; cut <= text.size(); ++cut) EXPECT_EQ(decode(text, cut), expected) << cut;
}

TEST(Utf8, PerByteGivesOneForEachIllFormedByte) {
  EXPECT_EQ(decode("\xE4\xBDx\xF0\x9F\x98\x80\xA7", 1, true), kReplacement + kReplacement + "x😀" + kReplacement);
  EXPECT_EQ(decode("\xF0\x9F", 1, true), kReplacement + kReplacement);
}

}  // namespace
}  // namespace mlxlm::text
