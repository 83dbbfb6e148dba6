#include "io/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "io/test_files.h"

namespace mlxlm::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file with one-byte tensors of the given names.
std::string weights(const std::vector<std::string>& names, const std::string& data) {
  Json header = Json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    header[names[i]] = {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {i, i + 1}}};
  }
  return safetensors_bytes(header.dump(), data);
}

std::map<std::string, std::string> base() {
  return {{"config.json", R"({"model_type":"llama"})"}, {"model.safetensors", weights({"a", "b"}, "AB")}};
}

Thrown thrown_for(std::map<std::string, std::string> files) {
  return thrown_by([&] { open_model_folder(FolderInMemory(std::move(files))); });
}

char value_of(const ModelFolder& folder, const std::string& name) {
  return std::to_integer<char>(*folder.tensors.at(name)->data);
}

TEST(ModelFolder, WithoutAnIndexAllModelFilesAreRead) {
  auto files = base();
  files["model-2.safetensors"] = weights({"c"}, "C");
  files["adapters.safetensors"] = weights({"a"}, "X");
  const auto folder = open_model_folder(FolderInMemory(files));
  EXPECT_EQ(folder->tensors.size(), 3u);
  EXPECT_EQ(value_of(*folder, "c"), 'C');
  EXPECT_EQ(folder->file_of(*folder->tensors.at("c")), "folder/model-2.safetensors");
  EXPECT_EQ(folder->file_of(*folder->tensors.at("a")), "folder/model.safetensors");
  EXPECT_TRUE(folder->generation_config.is_object());
}

TEST(ModelFolder, DuplicatesWithoutAnIndexAreAnError) {
  auto files = base();
  files["model-old.safetensors"] = weights({"b"}, "X");
  EXPECT_THAT(thrown_for(files).message, AllOf(HasSubstr("tensor 'b' is also in"), HasSubstr("model-old.safetensors")));
}

TEST(ModelFolder, TheIndexDecides) {
  auto files = base();
  files["model-old.safetensors"] = "a stray file, not even safetensors";
  files["model.safetensors.index.json"] = R"({"weight_map":{"a":"model.safetensors","b":"model.safetensors"}})";
  EXPECT_EQ(value_of(*open_model_folder(FolderInMemory(files)), "b"), 'B');
  files["model-2.safetensors"] = weights({"b", "c"}, "bc");
  files["model.safetensors.index.json"] =
      R"({"weight_map":{"a":"model.safetensors","b":"model.safetensors","c":"model-2.safetensors"}})";
  const auto folder = open_model_folder(FolderInMemory(files));
  EXPECT_EQ(value_of(*folder, "b"), 'B');
  EXPECT_EQ(value_of(*folder, "c"), 'c');
}

TEST(ModelFolder, TensorsTheIndexForgotAreTakenFromItsFiles) {
  auto files = base();
  files["model.safetensors.index.json"] = R"({"weight_map":{"a":"model.safetensors"}})";
  EXPECT_EQ(value_of(*open_model_folder(FolderInMemory(files)), "b"), 'B');
  files["model-2.safetensors"] = weights({"b", "c"}, "bc");
  files["model.safetensors.index.json"] = R"({"weight_map":{"a":"model.safetensors","c":"model-2.safetensors"}})";
  EXPECT_THAT(thrown_for(files).message, HasSubstr("tensor 'b' is also in"));
}

TEST(ModelFolder, FaultyIndexes) {
  const struct {
    const char* index;
    const char* message;
    ErrorKind kind;
  } cases[] = {
      {R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})", "folder/model-00001-of-00002.safetensors: missing",
       ErrorKind::not_found},
      {R"({"weight_map":{"z":"model.safetensors"}})", "puts tensor 'z' into model.safetensors",
       ErrorKind::invalid_value},
      {R"({"weight_map":{"a":"../model.safetensors"}})", "files in this folder", ErrorKind::invalid_value},
      {R"({"weight_map":{"a":1}})", "'a': expected a file name", ErrorKind::invalid_value},
      {R"({"weight_map":{}})", "weight_map is empty", ErrorKind::invalid_value},
      {R"({"weight_map":[]})", "expected an object 'weight_map'", ErrorKind::invalid_value},
      {R"({})", "expected an object 'weight_map'", ErrorKind::invalid_value},
      {R"([])", "expected a JSON object, got array", ErrorKind::invalid_value},
      {R"({)", "index.json: line 1", ErrorKind::invalid_value},
  };
  for (const auto& c : cases) {
    auto files = base();
    files["model.safetensors.index.json"] = c.index;
    const auto thrown = thrown_for(files);
    EXPECT_THAT(thrown.message, HasSubstr(c.message)) << c.index;
    EXPECT_EQ(thrown.kind, c.kind) << c.index;
  }
}

TEST(ModelFolder, MissingPieces) {
  const auto no_config = thrown_for({{"model.safetensors", weights({"a"}, "A")}});
  EXPECT_EQ(no_config.kind, ErrorKind::not_found);
  EXPECT_THAT(no_config.message, HasSubstr("no config.json"));
  const auto no_weights = thrown_for({{"config.json", "{}"}, {"weights.npz", ""}});
  EXPECT_EQ(no_weights.kind, ErrorKind::not_found);
  EXPECT_THAT(no_weights.message, HasSubstr("looked for model.safetensors.index.json and model*.safetensors"));
}

TEST(ModelFolder, FaultyConfigsAreErrors) {
  for (const char* bad : {"", "[]", "null", "{\"a\":}", "{\"eos_token_id\": 1"}) {
    auto files = base();
    files["generation_config.json"] = bad;
    EXPECT_THAT(thrown_for(files).message, HasSubstr("folder/generation_config.json")) << bad;
    files = base();
    files["config.json"] = bad;
    EXPECT_THAT(thrown_for(files).message, HasSubstr("folder/config.json")) << bad;
  }
}

TEST(ModelFolder, FloatObjectsBecomeNumbers) {
  auto files = base();
  files["config.json"] =
      R"({"a":{"__float__":"Infinity"},"b":[{"__float__":"-Infinity"},{"__float__":"NaN"}],"c":{"__float__":"x"},"d":{"__float__":"NaN","e":1}})";
  const auto folder = open_model_folder(FolderInMemory(files));
  EXPECT_EQ(folder->config["a"].get<double>(), INFINITY);
  EXPECT_EQ(folder->config["b"][0].get<double>(), -INFINITY);
  EXPECT_TRUE(std::isnan(folder->config["b"][1].get<double>()));
  EXPECT_TRUE(folder->config["c"].is_object());
  EXPECT_TRUE(folder->config["d"].is_object());
}

TEST(ModelFolder, OnDisk) {
  const TempFolder temp;
  for (const auto& [name, text] : base()) write_text_file(temp.file(name), text);
  write_text_file(temp.file("generation_config.json"), R"({"eos_token_id": [1, 2]})");
  const auto folder = open_model_folder(temp.path());
  EXPECT_EQ(value_of(*folder, "a"), 'A');
  EXPECT_EQ(folder->generation_config["eos_token_id"].size(), 2u);
  const auto missing = thrown_by([&] { open_model_folder(temp.file("missing")); });
  EXPECT_EQ(missing.kind, ErrorKind::not_found);
  EXPECT_THAT(missing.message, HasSubstr("no such model folder"));
  EXPECT_THAT(thrown_by([&] { open_model_folder(temp.file("config.json")); }).message, HasSubstr("got a file"));
}

TEST(ModelFolder, ReleasedDataIsReadAgain) {
  const TempFolder temp;
  for (const auto& [name, text] : base()) write_text_file(temp.file(name), text);
  for (const auto& folder : {open_model_folder(temp.path()), open_model_folder(FolderInMemory(base()))}) {
    EXPECT_EQ(value_of(*folder, "b"), 'B');
    const TensorView& tensor = *folder->tensors.at("b");
    folder->release(tensor, {tensor.data, tensor.bytes});
    EXPECT_EQ(value_of(*folder, "a"), 'A');
    EXPECT_EQ(value_of(*folder, "b"), 'B');
  }
}

}  // namespace
}  // namespace mlxlm::io
