#include "cli/report.h"

#include <gtest/gtest.h>

namespace mlxlm::cli {
namespace {

GenerationResponse response(int32_t token, int64_t count, const char* text) {
  GenerationResponse out;
  out.token = token;
  out.text = text;
  out.generation_tokens = count;
  out.logprob = -0.5f;
  out.top_logprobs = {{token, -0.5f}, {1, -2.0f}};
  return out;
}

TEST(GenerationRecord, CountsEachTokenOnce) {
  GenerationRecord record;
  record.add(response(7, 1, "a"));
  record.add(response(7, 2, "a"));
  GenerationResponse end = response(7, 2, "b");  // cancelled: the last token again, with held-back text
  end.finish_reason = "cancelled";
  record.add(end);
  EXPECT_EQ(record.text, "aab");
  EXPECT_EQ(record.token_ids, (std::vector<int32_t>{7, 7}));
  EXPECT_EQ(record.logprobs.size(), 2u);
  EXPECT_EQ(record.top_logprobs.size(), 2u);
}

TEST(GenerationRecord, NoTokens) {
  GenerationRecord record;
  GenerationResponse only;
  only.finish_reason = "length";
  record.add(only);
  EXPECT_TRUE(record.token_ids.empty());
  EXPECT_EQ(record_json(record, true)["top_logprobs"], io::Json::array());
}

TEST(GenerationRecord, JsonKeysAndTypes) {
  GenerationRecord record;
  record.prompt_token_ids = {1, 2};
  record.add(response(7, 1, "\xff"));
  const io::Json json = record_json(record, true);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"text", "prompt_token_ids", "token_ids", "logprobs", "top_logprobs",
                                            "from_draft", "finish_reason", "prompt_tokens", "cached_tokens",
                                            "prompt_tps", "generation_tokens", "generation_tps", "draft_tokens",
                                            "accepted_tokens", "peak_memory", "seed"}));
  EXPECT_EQ(json["from_draft"].dump(), "[false]");
  EXPECT_EQ(json["top_logprobs"].dump(), "[[[7,-0.5],[1,-2.0]]]");
  EXPECT_EQ(record_json(record, false)["top_logprobs"], io::Json::array());
  EXPECT_TRUE(json["finish_reason"].is_null());
  EXPECT_NE(json_text(json).find("\xEF\xBF\xBD"), std::string::npos);  // not an exception
}

TEST(Report, StatisticsReadAsTheReference) {
  GenerationResponse last;
  last.prompt_tokens = 12;
  last.prompt_tps = 34.5678;
  last.generation_tokens = 9;
  last.generation_tps = 1.25;
  last.peak_memory = 0.1234;
  EXPECT_EQ(statistics_text(last),
            "Prompt: 12 tokens, 34.568 tokens-per-sec\n"
            "Generation: 9 tokens, 1.250 tokens-per-sec\n"
            "Peak memory: 0.123 GB\n");
  last.draft_tokens = 8;
  last.accepted_tokens = 6;
  EXPECT_NE(statistics_text(last).find("\nSpeculation: 6 of 8 guessed tokens right (75.0 %)\nPeak"), std::string::npos);
}

TEST(Report, Numbers) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(134515008), "134,515,008");
  EXPECT_EQ(with_commas(-1234), "-1,234");
  EXPECT_EQ(bytes_text(96.6e6), "96.6 MB");
  EXPECT_EQ(bytes_text(1.5e9), "1.5 GB");
  EXPECT_EQ(bytes_text(120e6), "120 MB");
  EXPECT_EQ(bytes_text(12), "12 bytes");
}

}  // namespace
}  // namespace mlxlm::cli
