#include "hub/settings.h"

#include <gtest/gtest.h>

#include <map>

#include "io/test_files.h"

namespace mlxlm::hub {
namespace {

using io::thrown_by;

Settings with(const std::map<std::string, std::string>& variables, const HubOptions& options = {}) {
  return resolve_settings(options, [&](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    if (it == variables.end() || it->second.empty()) return std::nullopt;
    return it->second;
  });
}

TEST(Settings, CacheFolderInTheOrderOfHuggingfaceHub) {
  EXPECT_EQ(with({{"HOME", "/u"}}).cache_dir, "/u/.cache/huggingface/hub");
  EXPECT_EQ(with({{"HOME", "/u"}, {"XDG_CACHE_HOME", "/x"}}).cache_dir, "/x/huggingface/hub");
  EXPECT_EQ(with({{"HF_HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache_dir, "/h/hub");
  EXPECT_EQ(with({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache_dir, "/old");
  EXPECT_EQ(with({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}, {"HF_HUB_CACHE", "/c"}}).cache_dir, "/c");
  EXPECT_EQ(with({{"HOME", "/u"}, {"HF_HUB_CACHE", "~/c"}}).cache_dir, "/u/c");
  HubOptions options;
  options.cache_dir = "/own/./x/";
  EXPECT_EQ(with({{"HF_HOME", "/h"}, {"HF_HUB_CACHE", "/c"}}, options).cache_dir, "/own/x/");
  EXPECT_NE(thrown_by([] { with({}); }).message.find("HOME is not set"), std::string::npos);
}

TEST(Settings, TokenFromOptionsVariablesOrFile) {
  const io::TempFolder home;
  io::write_text_file(home.file("token"), "hf_file\n");
  const std::string path = home.path();
  EXPECT_EQ(with({{"HF_HOME", path}}).token, "hf_file");
  EXPECT_EQ(with({{"HF_HOME", path}, {"HF_TOKEN", " hf_variable\n"}}).token, "hf_variable");
  EXPECT_EQ(with({{"HF_HOME", path}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token, "");
  EXPECT_EQ(with({{"HF_HOME", "/nowhere"}}).token, "");
  EXPECT_EQ(with({{"HF_HOME", "/nowhere"}, {"HF_TOKEN_PATH", path + "/token"}}).token, "hf_file");
  HubOptions options;
  options.token = "hf_option";
  EXPECT_EQ(with({{"HF_HOME", path}, {"HF_TOKEN", "hf_variable"}}, options).token, "hf_option");
  options.token = "two words";
  EXPECT_EQ(thrown_by([&] { with({{"HF_HOME", path}}, options); }).kind, ErrorKind::invalid_value);
  options.token = "a\r\nX-Other: b";
  const auto thrown = thrown_by([&] { with({{"HF_HOME", path}}, options); });
  EXPECT_EQ(thrown.kind, ErrorKind::invalid_value);
  EXPECT_EQ(thrown.message.find("X-Other"), std::string::npos) << "a token is secret";
}

TEST(Settings, Endpoint) {
  EXPECT_EQ(with({{"HF_HOME", "/h"}}).endpoint, "https://huggingface.co");
  EXPECT_EQ(with({{"HF_HOME", "/h"}, {"HF_ENDPOINT", "http://127.0.0.1:80/x/"}}).endpoint, "http://127.0.0.1:80/x");
  for (const char* bad : {"huggingface.co", "ftp://x", "http://", "http://a b", "http://a?b", "http://a\n"}) {
    EXPECT_EQ(thrown_by([&] {
                with({{"HF_HOME", "/h"}, {"HF_ENDPOINT", bad}});
              }).kind,
              ErrorKind::invalid_value)
        << bad;
  }
}

TEST(Settings, Offline) {
  for (const char* on : {"1", "ON", "yes", "True"}) {
    EXPECT_TRUE(with({{"HF_HOME", "/h"}, {"HF_HUB_OFFLINE", on}}).offline) << on;
  }
  EXPECT_TRUE(with({{"HF_HOME", "/h"}, {"TRANSFORMERS_OFFLINE", "1"}}).offline);
  EXPECT_FALSE(with({{"HF_HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}}).offline);
  HubOptions options;
  options.offline = false;
  EXPECT_FALSE(with({{"HF_HOME", "/h"}, {"HF_HUB_OFFLINE", "1"}}, options).offline);
}

TEST(Settings, TimeoutAndWorkers) {
  EXPECT_EQ(with({{"HF_HOME", "/h"}}).timeout, std::chrono::seconds(10));
  EXPECT_EQ(with({{"HF_HOME", "/h"}, {"HF_HUB_DOWNLOAD_TIMEOUT", "3"}}).timeout, std::chrono::seconds(3));
  for (const char* bad : {"0", "-1", "x", "1s"}) {
    const auto thrown = thrown_by([&] { with({{"HF_HOME", "/h"}, {"HF_HUB_DOWNLOAD_TIMEOUT", bad}}); });
    EXPECT_EQ(thrown.message.find("HF_HUB_DOWNLOAD_TIMEOUT"), 0u) << bad;
  }
  HubOptions options;
  options.max_workers = 0;
  EXPECT_EQ(thrown_by([&] { with({{"HF_HOME", "/h"}}, options); }).kind, ErrorKind::invalid_value);
}

}  // namespace
}  // namespace mlxlm::hub
