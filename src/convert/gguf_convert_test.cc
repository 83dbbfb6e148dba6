// Shards, interruption and leftovers; that weights and tokenizers are right is tested with the reference packages, in
// tests/convert.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "io/model_folder.h"
#include "io/test_files.h"
#include "mlxlm/convert.h"

namespace mlxlm::conversion {
namespace {

using ::testing::HasSubstr;

const std::string kLlama = MLXLM_GGUF_SEEDS "/llama.gguf";  // one layer, Q4_0 with an embedding in Q8_0
const std::string kGemma = MLXLM_GGUF_SEEDS "/gemma3.gguf";

TEST(GgufConvert, ReportsWhatItMade) {
  const io::TempFolder temp;
  const auto report = convert_gguf(kLlama, temp.file("out"));
  EXPECT_EQ(report.model_type, "llama");
  EXPECT_EQ(report.quantization, "4-bit group 32 and 8-bit group 32");
  EXPECT_EQ(report.shards, 1);
  EXPECT_EQ(report.tensors, 11);
  const auto folder = io::open_model_folder(report.path);
  EXPECT_EQ(folder->tensors.size(), 11u + 2 * 8);  // scales and biases of 7 projections and the embedding
  EXPECT_EQ(folder->config.at("rope_scaling").at("rope_type"), "llama3");
}

TEST(GgufConvert, ShardsHoldTheSameTensors) {
  const io::TempFolder temp;
  convert_gguf(kGemma, temp.file("one"));
  const auto report = convert_gguf(kGemma, temp.file("many"), {.max_shard_bytes = 1500});
  EXPECT_GT(report.shards, 3);
  const auto one = io::open_model_folder(temp.file("one"));
  const auto many = io::open_model_folder(temp.file("many"));
  EXPECT_EQ(many->files.size(), static_cast<size_t>(report.shards));
  EXPECT_THAT(many->files.front().path(), HasSubstr(format_text("model-00001-of-{:05}.safetensors", report.shards)));
  ASSERT_EQ(one->tensors.size(), many->tensors.size());
  for (const auto& [name, tensor] : one->tensors) {
    const io::TensorView& other = *many->tensors.at(name);
    ASSERT_EQ(tensor->bytes, other.bytes) << name;
    EXPECT_EQ(std::memcmp(tensor->data, other.data, other.bytes), 0) << name;
  }
}

TEST(GgufConvert, ProgressRunsToTheEnd) {
  const io::TempFolder temp;
  std::vector<int64_t> done;
  int64_t all = 0;
  const auto report = convert_gguf(kLlama, temp.file("out"), {.progress = [&](int64_t n, int64_t total) {
                                     done.push_back(n);
                                     all = total;
                                   }});
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), report.bytes);
  EXPECT_EQ(all, report.bytes);
}

TEST(GgufConvert, AnInterruptedConversionLeavesNothing) {
  const io::TempFolder temp;
  const auto thrown = io::thrown_by([&] {
    convert_gguf(kLlama, temp.file("out"),
                 {.progress = [](int64_t, int64_t) { throw_error(ErrorKind::cancelled, "stop"); }});
  });
  EXPECT_EQ(thrown.kind, ErrorKind::cancelled);
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

TEST(GgufConvert, OutputFolders) {
  const io::TempFolder temp;
  EXPECT_THAT(io::thrown_by([&] { convert_gguf(kLlama, ""); }).message, HasSubstr("has no name"));
  convert_gguf(kLlama, temp.file("new/folders/out/"));
  EXPECT_TRUE(std::filesystem::exists(temp.file("new/folders/out/config.json")));
  EXPECT_THAT(io::thrown_by([&] { convert_gguf(kLlama, temp.file("new")); }).message, HasSubstr("exists already"));
  io::write_text_file(temp.file("file"), "");
  EXPECT_THAT(io::thrown_by([&] { convert_gguf(kLlama, temp.file("file")); }).message, HasSubstr("exists already"));
  EXPECT_EQ(io::thrown_by([&] { convert_gguf(kLlama, temp.file("file/out")); }).kind, ErrorKind::io);
}

}  // namespace
}  // namespace mlxlm::conversion
