#include <ctime>
#include <thread>

#include "sampling/test_grammars.h"

namespace mlxlm {
namespace {

using Kind = Grammar::Kind;

std::string refusal(Kind kind, const std::string& source) {
  return message_of([&] { constrain(*bytes().tokenizer, {.kind = kind, .source = source}); });
}

TEST(Grammar, ErrorsNameThePlace) {
  EXPECT_EQ(refusal(Kind::json_schema, "{\"type\": }"),
            "grammar: the JSON schema: not JSON: expected value at line 1 column 10");
  EXPECT_EQ(refusal(Kind::json_schema, "[1]"), "grammar: the JSON schema: expected an object, got an array");
  EXPECT_EQ(refusal(Kind::json_schema, "false"), "grammar: the JSON schema: the schema false admits no text");
  EXPECT_NE(refusal(Kind::json_schema, R"({"type": "strnig"})").find("strnig"), std::string::npos);
  EXPECT_NE(refusal(Kind::json_schema, R"({"uniqueItems": true})").find("uniqueItems"), std::string::npos);
  EXPECT_NE(refusal(Kind::json_schema, R"({"$ref": "https://example.com/x"})").find("example.com"), std::string::npos);
  EXPECT_NE(refusal(Kind::json_schema, R"({"type": "integer", "minimum": 5, "maximum": 4})").find("nsatisfiable"),
            std::string::npos);
  EXPECT_NE(refusal(Kind::regex, "(a").find("unclosed group"), std::string::npos);
  EXPECT_NE(refusal(Kind::regex, "a\\bc").find("lookarounds not supported"), std::string::npos);
  EXPECT_NE(refusal(Kind::regex, "(?P<stop>a)").find("name the group otherwise"), std::string::npos);
  EXPECT_NE(refusal(Kind::lark, "start: word\n").find("unknown name: \"word\""), std::string::npos);
  EXPECT_NE(refusal(Kind::lark, "start: \"a\"\nstart2 \"b\"\n").find("2(8)"), std::string::npos);
  EXPECT_NE(refusal(Kind::lark, "").find("start"), std::string::npos);
  EXPECT_NE(refusal(Kind::lark, "start: <|nothing|>").find("unknown special token: \"<|nothing|>\""),
            std::string::npos);
  EXPECT_NE(refusal(Kind::lark, "start: a\na: a\n").find("it admits no text"), std::string::npos);
  EXPECT_NE(refusal(Kind::json_schema, R"({"$ref": "#"})").find("it admits no text"), std::string::npos);
  EXPECT_NE(refusal(Kind::lark, "start: a\na[stop=\"x\"]: /b*/").find("suffix="), std::string::npos);
  // Also where the crate would drop it: on what may be empty, behind other text, in rules that nothing reaches.
  for (const char* source :
       {"start: a\na[temperature=0.5]: /b+/", "start: a\na[temperature=0.5]: /b*/", "start: a\na[temperature=0]: /b+/",
        "start: \"x\" a?\na[capture, temperature = 0.7]: /b*/", "start: \"x\"\na[temperature=1]: /b/",
        "start: a\na[temperature=1]: %json {\"type\": \"boolean\"}"}) {
    EXPECT_NE(refusal(Kind::lark, source).find("temperature= is not supported"), std::string::npos) << source;
  }
  EXPECT_EQ(refusal(Kind::lark, "start: \"temperature=1\" temperature // [temperature=1]\ntemperature: /[0-9]+/"),
            "no failure");
  EXPECT_NE(refusal(Kind::regex, "\xFF").find("not valid UTF-8 at byte 0"), std::string::npos);
  EXPECT_NE(refusal(Kind::choice, "").find("at least one text"), std::string::npos);
  EXPECT_NE(refusal(Kind::json_object, "{}").find("this kind has none"), std::string::npos);
  EXPECT_NE(message_of([] {
              constrain(*bytes().tokenizer, {.kind = Kind::regex, .source = "a", .choices = {"b"}});
            }).find("choices"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              constrain(*bytes().tokenizer, {.kind = Kind::choice, .choices = {"a", "\xC3"}});
            }).find("choices[1]"),
            std::string::npos);
}

TEST(Grammar, ADecoderWithoutBytesForATokenIsRefused) {
  text::TestFolder folder;
  folder.write("tokenizer.json", text::tokenizer_json(text::bpe_model({"a"}),
                                                      {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}));
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  const std::string message =
      message_of([&] { constrain(tokenizer, {.kind = Kind::json_object}); }, ErrorKind::unsupported);
  EXPECT_NE(message.find("WordPiece"), std::string::npos) << message;
}

TEST(Grammar, AVocabularyThatCannotWriteTheTextSaysSo) {
  text::TestFolder folder;
  folder
      .write("tokenizer.json",
             text::tokenizer_json(text::bpe_model({"a", "b"}), text::byte_level(), text::byte_level(), {"</s>"}))
      .write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  Request request(tokenizer, {.kind = Kind::choice, .choices = {"ac", "b"}});
  EXPECT_EQ(request.admitted(), (std::vector<int32_t>{0, 1}));
  request.add(0);
  const std::string message = message_of([&] { request.admitted(); }, ErrorKind::unsupported);
  EXPECT_NE(message.find("after 1 generated tokens no token"), std::string::npos) << message;
}

/// A repetition of `part`, `times` times, between two texts.
std::string around(const std::string& open, const std::string& part, size_t times, const std::string& close) {
  std::string text = open;
  for (size_t i = 0; i < times; ++i) text += part;
  return text + close;
}

/// Made to hurt: deep, long, or growing when it is compiled.
std::vector<std::pair<Kind, std::string>> hostile_sources() {
  std::vector<std::pair<Kind, std::string>> sources = {
      {Kind::json_schema, around("", R"({"items":)", 100000, "")},
      {Kind::json_schema, around("", R"({"items":)", 100, "") + "{}" + around("", "}", 100, "")},
      {Kind::json_schema, R"({"type": "array", "minItems": 1000000000})"},
      {Kind::json_schema, R"({"type": "string", "minLength": 1000000000, "maxLength": 2000000000})"},
      {Kind::json_schema, R"({"type": "string", "pattern": "((a{1000}){1000}){1000}"})"},
      {Kind::json_schema, R"({"type": "integer", "multipleOf": 999999999999})"},
      {Kind::json_schema, R"({"$ref": "#"})"},
      {Kind::json_schema,
       R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})"},
      {Kind::json_schema, R"({"allOf": [{"$ref": "#"}, {"$ref": "#"}]})"},
      {Kind::regex, around("", "(", 60000, "")},
      {Kind::regex, around("", "(", 200, "a") + around("", ")?", 200, "")},
      {Kind::regex, "((((a{99}){99}){99}){99}){99}"},
      {Kind::regex, "(a|aa)*(a|aaa)*b"},
      {Kind::regex, "(.*a){30}"},
      {Kind::regex, "(\\w{100}){100}"},
      {Kind::regex, std::string(60000, 'a')},
      {Kind::regex, around("", "[^a]\\pL", 8000, "")},
      {Kind::lark, around("start: ", "(", 60000, "")},
      {Kind::lark, "start: a\na: a\n"},
      {Kind::lark, "start: a*\na: b*\nb: a*\n"},
      {Kind::lark, "start: a~1000000\na: b~1000000\nb: \"x\"~1000000\n"},
      {Kind::lark, around("start: ", "\"a\" | ", 10000, "\"b\"")},
      {Kind::lark, std::string(1 << 21, '#')},
  };
  std::string chain = "start: r0\n";  // rules that call one another in a line
  std::string definitions = R"({"$ref": "#/$defs/r0", "$defs": {)";
  for (int i = 0; i < 3500; ++i) {
    const std::string rule = std::to_string(i), next = std::to_string(i + 1);
    chain += "r" + rule + ": \"a\" r" + next + "\n";
    definitions += "\"r" + rule + "\": {\"items\": {\"$ref\": \"#/$defs/r" + next + "\"}},";
  }
  sources.emplace_back(Kind::lark, chain + "r3500: \"b\"\n");
  sources.emplace_back(Kind::json_schema, definitions + "\"r3500\": {}}}");
  return sources;
}

TEST(Grammar, HostileSourcesEndInAnErrorOrAResultInTime) {
  for (const auto& [kind, source] : hostile_sources()) {
    const std::clock_t start = std::clock();  // of the processor: the machine may be busy
    std::string outcome = "compiled";
    try {
      Request request(*bytes().tokenizer, {.kind = kind, .source = source});
      for (int i = 0; i < 20; ++i) {
        const std::vector<int32_t> ids = request.admitted();
        request.add(ids[ids.size() / 2]);
      }
    } catch (const Error& error) {
      outcome = error.what();
      EXPECT_NE(error.kind(), ErrorKind::internal) << outcome;
      EXPECT_LT(outcome.size(), 5000u);
    }
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    // The slowest takes a second.
    EXPECT_LT(seconds, 10) << source.substr(0, 60) << ": " << outcome;
  }
}

TEST(Grammar, ManyThreadsCompileAndRunAtOnce) {
  const ByteLevelModel model;  // its own: the threads also race to prepare the vocabulary
  std::vector<std::string> texts(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      Request request(*model.tokenizer, {.kind = Kind::json_schema, .source = kPerson});
      texts[i] = walk(request, static_cast<uint32_t>(i % 2));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 2; i < texts.size(); ++i) EXPECT_EQ(texts[i], texts[i % 2]);
}

}  // namespace
}  // namespace mlxlm
