#include "hub/repo_tree.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace mlxlm::hub {
namespace {

using io::Json;
using io::thrown_by;

const std::string kSha1(40, 'a');
const std::string kSha256(64, 'b');

Json page() {
  return Json::array({
      {{"type", "directory"}, {"path", "sub"}, {"oid", kSha1}, {"size", 0}},
      {{"type", "file"}, {"path", "config.json"}, {"oid", kSha1}, {"size", 12}},
      {{"type", "file"},
       {"path", "model.safetensors"},
       {"oid", kSha1},
       {"size", 99},
       {"xetHash", std::string(64, 'c')},
       {"lfs", {{"oid", kSha256}, {"size", 99}, {"pointerSize", 130}}}},
  });
}

TEST(RepoTree, ReadsTheHubsList) {
  RepoTree tree;
  add_tree_page(page(), "page", tree);
  ASSERT_EQ(tree.size(), 2u);
  EXPECT_EQ(tree["config.json"].etag, kSha1);
  EXPECT_FALSE(tree["config.json"].large);
  const RepoFile& weights = tree["model.safetensors"];
  EXPECT_EQ(weights.etag, kSha256);
  EXPECT_EQ(weights.size, 99);
  EXPECT_TRUE(weights.large);
}

TEST(RepoTree, SurvivesTheCache) {
  RepoTree tree;
  add_tree_page(page(), "page", tree);
  const Json json = tree_to_json(tree);
  // The format is huggingface_hub's.
  EXPECT_EQ(json["format_version"], 1);
  EXPECT_EQ(json["files"]["model.safetensors"]["lfs_sha256"], kSha256);
  EXPECT_EQ(json["files"]["config.json"], (Json{{"size", 12}, {"blob_id", kSha1}}));
  const RepoTree again = tree_from_json(json, "file");
  EXPECT_EQ(tree_to_json(again), json);
  EXPECT_EQ(again.at("model.safetensors").xet_hash, std::string(64, 'c'));
}

TEST(RepoTree, RefusesWhatIsNoList) {
  RepoTree tree;
  for (const Json& bad : {Json("x"), Json{{"error", "x"}}, Json::array({1})}) {
    EXPECT_EQ(thrown_by([&] { add_tree_page(bad, "page", tree); }).message, "page: expected a list of files");
  }
  for (const char* path : {"../x.json", "/etc/x.json", "a/../../x.json", "a\\x.json", ""}) {
    Json entry = {{"type", "file"}, {"path", path}, {"oid", kSha1}, {"size", 1}};
    const auto thrown = thrown_by([&] { add_tree_page(Json::array({entry}), "page", tree); });
    EXPECT_NE(thrown.message.find("refused the file name"), std::string::npos) << path;
  }
  for (const Json& size : {Json(-1), Json(1.5), Json("1"), Json()}) {
    Json entry = {{"type", "file"}, {"path", "a.json"}, {"oid", kSha1}, {"size", size}};
    EXPECT_NE(thrown_by([&] { add_tree_page(Json::array({entry}), "page", tree); }).message, "") << size;
  }
  Json entry = {{"type", "file"}, {"path", "a.json"}, {"oid", "../x"}, {"size", 1}};
  EXPECT_NE(thrown_by([&] { add_tree_page(Json::array({entry}), "page", tree); }).message, "");
  EXPECT_NE(thrown_by([&] {
              tree_from_json(Json{{"format_version", 2}, {"files", Json::object()}}, "file");
            }).message,
            "");
  EXPECT_TRUE(tree.empty());
}

TEST(RepoTree, TakesWhatAModelNeeds) {
  for (const char* wanted : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                             "tokenizer.model", "chat_template.jinja", "vocab.txt", "merges.txt", "added_tokens.json",
                             "model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                             "qwen.tiktoken", "additional_chat_templates/tool.jinja"}) {
    EXPECT_TRUE(is_wanted(wanted)) << wanted;
  }
  for (const char* unwanted :
       {"README.md", ".gitattributes", "pytorch_model.bin", "model.gguf", "image.png", "tf_model.h5",
        "consolidated.safetensors", "onnx/model.onnx", "original/tokenizer.model"}) {
    EXPECT_FALSE(is_wanted(unwanted)) << unwanted;
  }
}

TEST(RepoTree, FilesOfAnIndex) {
  const Json index = {{"weight_map", {{"a", "x.safetensors"}, {"b", "y.safetensors"}, {"c", "x.safetensors"}}}};
  EXPECT_EQ(indexed_files(index), (std::set<std::string>{"x.safetensors", "y.safetensors"}));
  EXPECT_TRUE(indexed_files(Json::array()).empty());
  EXPECT_TRUE(indexed_files(Json{{"weight_map", 1}}).empty());
}

}  // namespace
}  // namespace mlxlm::hub
