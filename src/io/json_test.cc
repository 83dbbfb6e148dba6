#include "io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "io/json_reader.h"
#include "io/test_files.h"

namespace mlxlm::io {
namespace {

using ::testing::HasSubstr;

Json read_text(std::string_view text) { return parse_json(text, "x.json"); }
std::string text_error(std::string_view text) {
  return thrown_by([&] { read_text(text); }).message;
}

TEST(Json, ReadsEveryKindOfValueInOrder) {
  const Json json = read_text(R"( {"b": [1, -2, 2.5e1, true, false, null], "a": {"x": "y"}, "": "" } )");
  EXPECT_EQ(json.dump(), R"({"b":[1,-2,25.0,true,false,null],"a":{"x":"y"},"":""})");
  EXPECT_EQ(read_text("18446744073709551615").get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(read_text("-9223372036854775808").get<int64_t>(), INT64_MIN);
  EXPECT_DOUBLE_EQ(read_text("123456789012345678901234567890").get<double>(), 1.2345678901234568e29);
  EXPECT_EQ(read_text("0.1").get<double>(), 0.1);
}

TEST(Json, TakesPythonsNonFiniteNumbers) {
  EXPECT_TRUE(std::isnan(read_text("NaN").get<double>()));
  EXPECT_EQ(read_text("[Infinity]")[0].get<double>(), INFINITY);
  EXPECT_EQ(read_text(R"({"a":-Infinity})")["a"].get<double>(), -INFINITY);
  EXPECT_EQ(read_text("1e999").get<double>(), INFINITY);
  EXPECT_EQ(read_text("-1e999").get<double>(), -INFINITY);
  EXPECT_EQ(read_text("1e-999").get<double>(), 0.0);
  EXPECT_THAT(text_error("nan"), HasSubstr("malformed value 'nan'"));
  EXPECT_THAT(text_error("+Infinity"), HasSubstr("expected a JSON value"));
}

TEST(Json, DuplicateKeysKeepTheFirstPlaceAndTheLastValue) {
  EXPECT_EQ(read_text(R"({"a":1,"b":2,"a":3,"c":4,"a":5})").dump(), R"({"a":5,"b":2,"c":4})");
}

TEST(Json, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += format_text("\"key{}\":{},", i, i);
  text.back() = '}';
  EXPECT_EQ(read_text(text).size(), 200000u);
}

TEST(Json, DecodesEscapesAndSurrogates) {
  EXPECT_EQ(read_text(R"("\"\\\/\b\f\n\r\tA\u00e9\u20ac\ud83d\ude00")").get<std::string>(),
            "\"\\/\b\f\n\r\tA\u00e9\u20ac\U0001F600");
  EXPECT_EQ(read_text("\"\u00e9\U0001F600\"").get<std::string>(), "\u00e9\U0001F600");
  for (const char* bad : {R"("\ud83d")", R"("\ude00")", R"("\ud83dA")", R"("\ud83dx")"}) {
    EXPECT_THAT(text_error(bad), HasSubstr("lone surrogate")) << bad;
  }
}

TEST(Json, RejectsMalformedUtf8) {
  for (const char* bad : {"\"\xC3\"", "\"\x80\"", "\"\xC0\xAF\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"",
                          "\"\xE0\x80\x80\"", "\"\xF0\x80\x80\x80\"", "\"\xFF\"", "\"\xE2\x82"}) {
    EXPECT_THAT(text_error(bad), HasSubstr("UTF-8")) << bad;
  }
}

TEST(Json, SaysWhereTheFaultIs) {
  EXPECT_EQ(text_error("{\n  \"a\": 1,\n  oops\n}"), "x.json: line 3, column 3: expected a JSON value");
  EXPECT_EQ(text_error("{\"a\" 1}"), "x.json: line 1, column 6: expected ':' after the key");
  EXPECT_EQ(text_error(""), "x.json: line 1, column 1: expected a JSON value, got the end of the text");
}

TEST(Json, RejectsWhatIsNotJson) {
  for (const char* bad : {"{",     "}",     "[1,]",      "[,1]",    "{\"a\":1,}", "{,}",         "{1:2}",
                          "[1 2]", "\"abc", "\"a\\",     "\"\\x\"", "\"\\u12",    "\"\\u12G4\"", "\"\n\"",
                          "01",    "1.",    ".5",        "-",       "+1",         "1e",          "1e+",
                          "0x10",  "tru",   "truefalse", "[1]]",    "1 2",        "'a'",         "\xEF\xBB\xBF{}",
                          "//"}) {
    EXPECT_NE(text_error(bad), "") << bad;
  }
}

TEST(Json, DepthIsLimited) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(text_error(nested(256)), "");
  EXPECT_THAT(text_error(nested(257)), HasSubstr("nested deeper than 256"));
  EXPECT_THAT(text_error(std::string(10'000'000, '[')), HasSubstr("nested deeper"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(text_error(objects), HasSubstr("nested deeper"));
}

TEST(Json, ReaderSkipsValuesAndReadsSizes) {
  JsonReader reader(R"({"skip":{"a":[1,{"b":"c"}],"d":null},"size":42})", "x");
  std::string key;
  reader.begin_object();
  ASSERT_TRUE(reader.next_key(key));
  reader.skip_value();
  ASSERT_TRUE(reader.next_key(key));
  EXPECT_EQ(key, "size");
  EXPECT_EQ(reader.read_size("size"), 42);
  EXPECT_FALSE(reader.next_key(key));
  reader.finish();
  for (const char* bad : {"-1", "1.0", "1e3", "9223372036854775808", "\"1\"", "null", "[]", "00"}) {
    JsonReader other(bad, "x");
    EXPECT_THAT(thrown_by([&] { other.read_size("n"); }).message, HasSubstr("n: expected a whole number")) << bad;
  }
}

TEST(JsonFiles, WriteThenRead) {
  const TempFolder folder;
  const std::string path = folder.file("a.json");
  write_text_file(path, R"({"a": 1})");
  write_text_file(path, R"({"a": 2})");
  EXPECT_EQ(read_json_file(path)["a"], 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "a temporary file was left";
}

TEST(JsonFiles, MissingFilesAndFoldersAreErrors) {
  const TempFolder folder;
  const auto missing = thrown_by([&] { read_json_file(folder.file("none.json")); });
  EXPECT_EQ(missing.kind, ErrorKind::not_found);
  EXPECT_THAT(missing.message, HasSubstr("none.json"));
  const auto not_a_file = thrown_by([&] { read_text_file(folder.path()); });
  EXPECT_EQ(not_a_file.kind, ErrorKind::io);
  EXPECT_THAT(not_a_file.message, HasSubstr("got a folder"));
  EXPECT_EQ(thrown_by([&] { write_text_file(folder.file("no/such/folder.json"), ""); }).kind, ErrorKind::io);
}

}  // namespace
}  // namespace mlxlm::io
