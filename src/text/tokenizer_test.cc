#include "mlxlm/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/test_errors.h"
#include "mlxlm/error.h"
#include "text/test_tokenizers.h"
#include "text/tokenizer_impl.h"

namespace mlxlm {
namespace {

using io::Json;
using text::TestFolder;

const char* const kTemplate =
    "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}{{ enable_thinking }}";

/// Letters as tokens, BOS added by the post-processor, as in Llama models.
std::string letters_json(const std::vector<std::string>& more = {}) {
  std::vector<std::string> added = {"<s>", "</s>"};
  added.insert(added.end(), more.begin(), more.end());
  Json json = Json::parse(
      text::tokenizer_json(text::bpe_model({"a", "b", "c", "Ġ"}), text::byte_level(), text::byte_level(), added));
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}})");
  return json.dump();
}

TEST(Tokenizer, EncodesAndDecodes) {
  TestFolder folder;
  folder.write("tokenizer.json", letters_json());
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.encode("ab c"), (std::vector<int32_t>{4, 0, 1, 3, 2}));
  EXPECT_EQ(tokenizer.encode("a</s>", false), (std::vector<int32_t>{0, 5}));
  EXPECT_EQ(tokenizer.encode(""), (std::vector<int32_t>{4}));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{4, 0, 3, 2}), "<s>a c");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{4, 0, 3, 2}, true), "a c");
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  EXPECT_EQ(tokenizer.token_to_id("</s>"), 5);
  EXPECT_EQ(tokenizer.token_to_id("zzz"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(3), "Ġ");
  EXPECT_EQ(tokenizer.id_to_token(6), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_FALSE(tokenizer.has_chat_template());
  EXPECT_FALSE(tokenizer.has_thinking());
}

TEST(Tokenizer, VocabSizeCountsHoles) {
  Json model = text::bpe_model({"a", "b"});
  model["vocab"]["b"] = 9;
  TestFolder folder;
  folder.write("tokenizer.json", text::tokenizer_json(model, text::byte_level(), text::byte_level()));
  EXPECT_EQ(Tokenizer::from_folder(folder.path()).vocab_size(), 10);
}

TEST(Tokenizer, LongTokensAndNulBytes) {
  const std::string longest(1000, 'x');
  TestFolder folder;
  folder.write("tokenizer.json", letters_json({longest, std::string("n\0l", 3)}));
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.id_to_token(6), longest);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{6, 7, 0}), longest + std::string("n\0la", 4));
  EXPECT_EQ(tokenizer.encode(std::string_view("n\0la", 4), false), (std::vector<int32_t>{7, 0}));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  TestFolder folder;
  folder.write("tokenizer.json", letters_json());
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_NE(message_of([&] { tokenizer.encode("ab\xFF"); }, ErrorKind::invalid_value).find("offset 2"),
            std::string::npos);
  EXPECT_NE(message_of(
                [&] {
                  tokenizer.render_chat_template({{"user", "\xC3"}}, {.chat_template = "x"});
                },
                ErrorKind::invalid_value)
                .find("messages[0].content"),
            std::string::npos);
}

TEST(Tokenizer, SpecialTokensOfTheConfig) {
  TestFolder folder;
  folder.write("tokenizer.json", letters_json());
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>", "__type": "AddedToken"}, "eos_token": "</s>"})");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.bos_token_id(), 4);
  EXPECT_EQ(tokenizer.eos_token_ids(), (std::vector<int32_t>{5}));
}

TEST(Tokenizer, SpecialTokensMapFillsWhatTheConfigLacks) {
  TestFolder folder;
  folder.write("tokenizer.json", letters_json());
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": null})");
  folder.write("special_tokens_map.json", R"({"eos_token": "a", "bos_token": {"content": "<s>"}})");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.bos_token_id(), 4);
  EXPECT_EQ(tokenizer.eos_token_ids(), (std::vector<int32_t>{5}));
}

TEST(Tokenizer, ExactlyOneBos) {
  TestFolder folder;
  folder.write("tokenizer.json", letters_json());
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  folder.write("chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.apply_chat_template({{"user", "ab"}}), (std::vector<int32_t>{4, 0, 1, 5}));
  EXPECT_EQ(tokenizer.apply_chat_template_json(R"([{"role": "user", "content": "ab"}])"),
            (std::vector<int32_t>{4, 0, 1, 5}));
  EXPECT_EQ(tokenizer.encode("ab"), (std::vector<int32_t>{4, 0, 1}));
}

TEST(Tokenizer, ThinkingIsOnWhereTheVocabularyHasTheMarkers) {
  const std::vector<std::vector<std::string>> pairs = {
      {"<think>", "</think>"}, {"<longcat_think>", "</longcat_think>"}, {"<|channel>", "<channel|>"}};
  for (const auto& pair : pairs) {
    TestFolder folder;
    folder.write("tokenizer.json", letters_json(pair)).write("chat_template.jinja", kTemplate);
    const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
    EXPECT_TRUE(tokenizer.has_thinking()) << pair[0];
    EXPECT_EQ(tokenizer.render_chat_template({}), "True");
    EXPECT_EQ(tokenizer.render_chat_template({}, {.variables_json = R"({"enable_thinking": false})"}), "False");
  }
  TestFolder folder;
  folder.write("tokenizer.json", letters_json({"<think>"})).write("chat_template.jinja", kTemplate);
  EXPECT_EQ(Tokenizer::from_folder(folder.path()).render_chat_template({}), "False");
}

TEST(Tokenizer, MissingAndBrokenFilesAreNamed) {
  TestFolder folder;
  const auto load = [&] { Tokenizer::from_folder(folder.path()); };
  EXPECT_NE(message_of(load, ErrorKind::not_found).find("tokenizer.json: not found, nor another form"),
            std::string::npos);
  folder.write("tokenizer.model", "x");
  EXPECT_NE(message_of(load, ErrorKind::not_found).find("save_pretrained"), std::string::npos);
  for (const char* broken : {"", "{", "[]", "{\"model\": {}}", "\xFF", "{\"version\": \"9\"}"}) {
    folder.write("tokenizer.json", broken);
    const std::string message = message_of(load, ErrorKind::invalid_value);
    EXPECT_TRUE(message.starts_with(folder.path() + "/tokenizer.json: not a usable tokenizer.json: ")) << message;
  }
  folder.write("tokenizer.json", letters_json()).write("tokenizer_config.json", "{");
  EXPECT_NE(message_of(load, ErrorKind::invalid_value).find("tokenizer_config.json"), std::string::npos);
  EXPECT_NE(message_of([&] { Tokenizer::from_folder(folder.path() + "/absent"); }, ErrorKind::not_found).find("absent"),
            std::string::npos);
}

TEST(Tokenizer, ABrokenTemplateOnlyMattersWhenUsed) {
  TestFolder folder;
  folder.write("tokenizer.json", letters_json()).write("chat_template.jinja", "\n{% if %}");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  EXPECT_EQ(tokenizer.encode("a", false), (std::vector<int32_t>{0}));
  const std::string message = message_of(
      [&] {
        tokenizer.render_chat_template({{"user", "a"}});
      },
      ErrorKind::invalid_value);
  EXPECT_TRUE(message.starts_with(folder.path() + "/chat_template.jinja: ")) << message;
  EXPECT_NE(message.find("line 2"), std::string::npos) << message;
}

TEST(Tokenizer, SharedByThreads) {
  TestFolder folder;
  folder.write("tokenizer.json", letters_json()).write("chat_template.jinja", kTemplate);
  const Tokenizer tokenizer = Tokenizer::from_folder(folder.path());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string text(static_cast<size_t>(t + 1), 'a');
      for (int i = 0; i < 200; ++i) {
        const auto ids = tokenizer.encode(text, false);
        const bool right = tokenizer.decode(ids) == text && ids.size() == text.size() &&
                           tokenizer.render_chat_template({{"user", text}}) == text + "False";
        if (!right) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mlxlm
