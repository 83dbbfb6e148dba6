#include "cli/settings.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <set>

namespace mlxlm::cli {
namespace {

constexpr std::initializer_list<SettingGroup> kAllGroups = {
    SettingGroup::conversation, SettingGroup::one_prompt, SettingGroup::sampling,
    SettingGroup::penalties,    SettingGroup::form,       SettingGroup::answer,
    SettingGroup::logprobs,     SettingGroup::memory,     SettingGroup::speculation};

GenerationSettings from_options(std::vector<std::string> args) {
  CLI::App app;
  GenerationSettings settings;
  add_settings(app, settings, kAllGroups);
  app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  return settings;
}

GenerationSettings from_json(const char* key, const char* value) {
  GenerationSettings settings;
  EXPECT_TRUE(read_setting(key, io::parse_json(value, "test"), settings)) << key;
  return settings;
}

TEST(Settings, EveryOptionHasAJsonNameOfItsOwn) {
  CLI::App app;
  GenerationSettings settings;
  add_settings(app, settings, kAllGroups);
  std::set<std::string> from_app;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().front() == "help") continue;
    from_app.insert(setting_key("--" + option->get_lnames().front()));
  }
  const std::vector<std::string> keys = setting_keys();
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()), from_app);
  EXPECT_EQ(keys.size(), from_app.size());
  for (const std::string& key : keys) EXPECT_TRUE(read_setting(key, nullptr, settings)) << key;  // null: as it is
  EXPECT_FALSE(read_setting("no_such_setting", nullptr, settings));
}

TEST(Settings, OptionsAndJsonMeanTheSame) {
  EXPECT_EQ(from_options({"-m", "-1"}).max_tokens, from_json("max_tokens", "-1").max_tokens);
  EXPECT_EQ(from_options({"--top-p", "0.3"}).top_p, from_json("top_p", "0.3").top_p);
  EXPECT_EQ(from_options({"--kv-bits", "8"}).kv_bits, from_json("kv_bits", "8").kv_bits);
  EXPECT_EQ(from_options({"--deadline", "1.5"}).deadline, from_json("deadline", "1.5").deadline);
  EXPECT_EQ(from_options({"--json-object"}).json_object, from_json("json_object", "true").json_object);
  EXPECT_EQ(from_options({"--penalize-prompt", "false"}).penalize_prompt,
            from_json("penalize_prompt", "false").penalize_prompt);
  EXPECT_EQ(from_options({"--seed", "18446744073709551615"}).seed, from_json("seed", "18446744073709551615").seed);
  EXPECT_EQ(from_options({"--stop", "a", "--stop", "b"}).stop, from_json("stop", R"(["a", "b"])").stop);
  EXPECT_EQ(from_options({"--stop", "a"}).stop, from_json("stop", R"("a")").stop);
  EXPECT_EQ(from_options({"--regex", "a+"}).regex, from_json("regex", R"("a+")").regex);
  EXPECT_EQ(from_options({"--ban-token-ids", "1,2"}).ban_token_ids, from_json("ban_token_ids", "[1, 2]").ban_token_ids);
  EXPECT_EQ(from_options({"--logit-bias", R"({"1": 2.5, "3": -1})"}).logit_bias,
            from_json("logit_bias", R"({"1": 2.5, "3": -1})").logit_bias);
  EXPECT_EQ(from_options({"--json-schema", R"( {"type":"object"})"}).json_schema, R"( {"type":"object"})");
  EXPECT_EQ(from_json("json_schema", R"({"type": "object"})").json_schema, R"({"type":"object"})");
  EXPECT_EQ(from_json("chat_template_config", R"({"b": 1, "a": "x"})").chat_template_config, R"({"b":1,"a":"x"})");
}

TEST(Settings, QuantisationHasTheReferencesDefaults) {
  EXPECT_EQ(cache_options({}), PromptCacheOptions{});
  const PromptCacheOptions options = cache_options(from_options({"--kv-bits", "8"}));
  EXPECT_EQ(options.kv_group_size, 64);
  EXPECT_EQ(options.quantized_kv_start, 5000);
}

TEST(Settings, ConflictsAreToldInTheCallersNames) {
  GenerationSettings settings;
  EXPECT_EQ(settings_conflict(settings, NameStyle::option), "");
  settings.kv_group_size = 32;
  EXPECT_EQ(settings_conflict(settings, NameStyle::option), "--kv-group-size needs --kv-bits");
  EXPECT_EQ(settings_conflict(settings, NameStyle::key), "kv_group_size needs kv_bits");
  EXPECT_EQ(settings_conflict(settings, NameStyle::option, false, true), "");  // compared with the file's
}

}  // namespace
}  // namespace mlxlm::cli
