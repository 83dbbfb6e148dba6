// convert() on random folders: what must hold whatever the reference does. Against the real mlx_lm.convert the result
// is compared in test_convert_hf.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "convert/floats.h"
#include "io/files.h"
#include "io/model_folder.h"
#include "io/test_files.h"
#include "mlxlm/convert.h"
#include "models/registry.h"
#include "nn/weights.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

io::Json config_of(const std::string& model_type) {
  io::Json config = test::tiny_config(model_type);
  config["vocab_size"] = 256;
  return config;
}

/// A random folder and a place for results beside it.
class HfConvert : public ::testing::Test {
 protected:
  std::string make(const test::RandomModelOptions& options, const std::string& name = "source") {
    const std::string made = test::write_random_model(options);
    fs::rename(made, temp_.file(name));
    return temp_.file(name);
  }
  std::string out(const std::string& name = "out") const { return temp_.file(name); }

  /// The message of a failed conversion, which must leave nothing behind.
  io::Thrown failure(const ConvertOptions& options) const { return failure(out("source"), out(), options); }
  io::Thrown failure(const std::string& from, const std::string& to, const ConvertOptions& options) const {
    const auto before = io::list_folder(temp_.path());
    const auto thrown = io::thrown_by([&] { convert(from, to, options); });
    EXPECT_TRUE(thrown.kind) << "expected an error";
    EXPECT_EQ(io::list_folder(temp_.path()), before) << "something was left behind";
    return thrown;
  }

  /// Replaces the tensors of the source's only weight file.
  void rewrite(const std::function<void(std::vector<io::TensorView>&)>& change) const {
    const std::string path = out("source") + "/model.safetensors";
    {
      const auto file = io::SafetensorsFile::open(path);
      auto tensors = file.tensors();
      change(tensors);
      io::write_safetensors(path + ".new", tensors, {});
    }
    fs::rename(path + ".new", path);
  }

  /// Sets the first values of a float32 tensor.
  void poke(const std::string& name, const std::vector<float>& values) {
    rewrite([&](std::vector<io::TensorView>& tensors) {
      for (io::TensorView& tensor : tensors) {
        if (tensor.name != name) continue;
        poked_.assign(tensor.data, tensor.data + tensor.bytes);
        std::memcpy(poked_.data(), values.data(), values.size() * sizeof(float));
        tensor.data = poked_.data();
      }
    });
  }

  io::TempFolder temp_;
  std::vector<std::byte> poked_;
};

void expect_same_tensors(const std::string& a, const std::string& b) {
  const auto one = io::open_model_folder(a), two = io::open_model_folder(b);
  ASSERT_EQ(one->tensors.size(), two->tensors.size());
  for (const auto& [name, tensor] : one->tensors) {
    ASSERT_TRUE(two->tensors.contains(name)) << name;
    const io::TensorView& other = *two->tensors.at(name);
    EXPECT_EQ(tensor->dtype, other.dtype) << name;
    EXPECT_EQ(tensor->shape, other.shape) << name;
    ASSERT_EQ(tensor->bytes, other.bytes) << name;
    EXPECT_EQ(std::memcmp(tensor->data, other.data, other.bytes), 0) << name;
  }
}

void expect_loads(const std::string& path) {
  const auto folder = io::open_model_folder(path);
  EXPECT_NO_THROW(nn::bind_weights(folder, models::build_spec(*folder)));
}

TEST_F(HfConvert, EveryArchitectureQuantisesAndLoads) {
  std::set<std::string> types;
  for (const models::ModelType& type : models::model_types()) {
    const std::string name = type.name;
    make({.config = config_of(name), .dtype = DType::bf16}, name);
    const ConvertReport report = convert(out(name), out(name + "-q"), {.quantize = true, .q_group_size = 32});
    EXPECT_EQ(report.model_type, name);
    EXPECT_EQ(report.quantization, "4-bit group 32");
    EXPECT_GT(report.bits_per_weight, 4.9);
    EXPECT_LT(report.bits_per_weight, 5.3);
    expect_loads(report.path);
    types.insert(name);
  }
  EXPECT_GE(types.size(), 6u);
}

TEST_F(HfConvert, ThreadsAndShardsDoNotChangeTheTensors) {
  make({.config = config_of("llama")});
  const ConvertReport one = convert(out("source"), out("one"), {.quantize = true, .q_bits = 3, .threads = 1});
  const ConvertReport many =
      convert(out("source"), out("many"), {.quantize = true, .q_bits = 3, .threads = 5, .max_shard_bytes = 3000});
  EXPECT_EQ(one.shards, 1);
  EXPECT_GT(many.shards, 5);
  EXPECT_EQ(one.bytes, many.bytes);
  expect_same_tensors(out("one"), out("many"));
  const auto folder = io::open_model_folder(out("many"));
  EXPECT_EQ(folder->files.size(), static_cast<size_t>(many.shards));
  for (const auto& file : folder->files) {
    size_t bytes = 0;
    for (const auto& tensor : file.tensors()) bytes += tensor.bytes;
    EXPECT_TRUE(bytes <= 3000 || file.tensors().size() == 1) << file.path();
  }
}

TEST_F(HfConvert, AQuantisedFolderSurvivesUnchanged) {
  make({.config = config_of("qwen3"), .bits = 5, .dtype = DType::bf16, .mixed = true});
  const ConvertReport report = convert(out("source"), out());
  EXPECT_EQ(report.quantization, "5-bit group 32 and 8-bit group 32");
  expect_same_tensors(out("source"), out());
  const auto config = io::read_json_file(out() + "/config.json");
  EXPECT_EQ(config.at("quantization"), config.at("quantization_config"));
  EXPECT_EQ(config.at("quantization"), io::read_json_file(out("source") + "/config.json").at("quantization"));
}

TEST_F(HfConvert, DequantisingGivesTheWeightsBack) {
  make({.config = config_of("llama")});
  convert(out("source"), out("q"), {.quantize = true, .q_bits = 8, .q_group_size = 32});
  const ConvertReport report = convert(out("q"), out("d"), {.dequantize = true});
  EXPECT_EQ(report.quantization, "none");
  EXPECT_EQ(report.bits_per_weight, 32);
  const auto before = io::open_model_folder(out("source")), after = io::open_model_folder(out("d"));
  EXPECT_FALSE(after->config.contains("quantization") || after->config.contains("quantization_config"));
  ASSERT_EQ(before->tensors.size(), after->tensors.size());
  for (const auto& [name, tensor] : before->tensors) {
    const io::TensorView& other = *after->tensors.at(name);
    ASSERT_EQ(other.shape, tensor->shape) << name;
    std::vector<float> a(tensor->bytes / sizeof(float)), b(a.size());
    conversion::load_floats(tensor->data, tensor->dtype, a);
    conversion::load_floats(other.data, other.dtype, b);
    float largest = 0, error = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(a[i]));
      error = std::max(error, std::abs(a[i] - b[i]));
    }
    // A step is at most 2 · largest / 255, stretched by less than a hundredth; the far end may be a step off.
    EXPECT_LE(error, 2.02f / 255 * largest) << name;
  }
}

TEST_F(HfConvert, AFunctionChoosesEachModule) {
  make({.config = config_of("llama")});
  std::vector<std::string> asked;
  ConvertOptions options{.quantize = true, .q_bits = 4, .q_group_size = 32};
  options.choose = [&](const std::string& path) -> QuantChoice {
    asked.push_back(path);
    if (path.ends_with("o_proj")) return {.quantize = false};
    if (path.ends_with("v_proj")) return {.format = QuantFormat{8, 64}};
    return {};
  };
  convert(out("source"), out(), options);
  EXPECT_EQ(asked.front(), "model.embed_tokens");
  EXPECT_EQ(std::set(asked.begin(), asked.end()).size(), asked.size());
  const auto folder = io::open_model_folder(out());
  const std::string layer = "model.layers.0.self_attn.";
  EXPECT_FALSE(folder->tensors.contains(layer + "o_proj.scales"));
  EXPECT_EQ(folder->tensors.at(layer + "v_proj.scales")->shape.back(), 1);
  EXPECT_EQ(folder->tensors.at(layer + "q_proj.scales")->shape.back(), 2);
  EXPECT_EQ(folder->config.at("quantization").at(layer + "v_proj").at("bits"), 8);
  expect_loads(out());

  options.choose = [](const std::string&) { return QuantChoice{.format = QuantFormat{7, 32}}; };
  fs::remove_all(out());
  EXPECT_THAT(failure(options).message,
              HasSubstr("'model.embed_tokens': bits: expected one of 2, 3, 4, 5, 6, 8, got 7"));
  options.choose = [](const std::string&) { return QuantChoice{.format = QuantFormat{4, 128}}; };
  EXPECT_THAT(failure(options).message, HasSubstr("64 input features, not a multiple of the group size 128"));
  options.choose = [](const std::string&) { return QuantChoice{.quantize = false}; };
  EXPECT_THAT(failure(options).message, HasSubstr("leaves every layer dense"));
}

TEST_F(HfConvert, PartlyQuantisedFoldersGetTheRest) {
  make({.config = config_of("llama")});
  ConvertOptions first{.quantize = true, .q_bits = 4, .q_group_size = 32};
  first.choose = [](const std::string& path) { return QuantChoice{.quantize = !path.ends_with("embed_tokens")}; };
  convert(out("source"), out("part"), first);
  convert(out("part"), out(), {.quantize = true, .q_bits = 8, .q_group_size = 64});
  const auto folder = io::open_model_folder(out());
  EXPECT_EQ(folder->config.at("quantization").at("bits"), 4);
  EXPECT_EQ(folder->config.at("quantization").at("model.embed_tokens").at("bits"), 8);
  expect_loads(out());
}

TEST_F(HfConvert, RefusesWhatTheOptionsCannotMean) {
  make({.config = config_of("llama")});
  EXPECT_THAT(failure({.quantize = true, .dequantize = true}).message, HasSubstr("choose either"));
  EXPECT_THAT(failure({.quantize = true, .q_bits = 7}).message, HasSubstr("expected one of 2, 3, 4, 5, 6, 8, got 7"));
  EXPECT_THAT(failure({.quantize = true, .q_group_size = 16}).message,
              HasSubstr("expected one of 32, 64, 128, got 16"));
  EXPECT_EQ(failure({.quantize = true, .q_mode = "mxfp4"}).kind, ErrorKind::unsupported);
  EXPECT_THAT(failure({.dtype = "int8"}).message, HasSubstr("expected float16, bfloat16 or float32, got 'int8'"));
  EXPECT_THAT(failure({.quantize = true, .quant_predicate = "mixed"}).message, HasSubstr("mixed_2_6"));
  EXPECT_THAT(failure({.threads = -1}).message, HasSubstr("threads"));
  EXPECT_THAT(failure({.max_shard_bytes = 0}).message, HasSubstr("max_shard_bytes"));
}

TEST_F(HfConvert, RefusesAGroupSizeThatFitsNoLayer) {
  io::Json config = config_of("llama");
  config["intermediate_size"] = 96;
  make({.config = config});
  EXPECT_THAT(failure({.quantize = true, .q_group_size = 128}).message, HasSubstr("128 divides the width of no layer"));
  convert(out("source"), out(), {.quantize = true, .q_group_size = 64});  // all but down_proj, which is 96 wide
  EXPECT_FALSE(io::open_model_folder(out())->tensors.contains("model.layers.0.mlp.down_proj.scales"));
  expect_loads(out());
}

TEST_F(HfConvert, RefusesAFolderThatIsQuantised) {
  make({.config = config_of("llama"), .bits = 4});
  EXPECT_THAT(failure({.quantize = true, .q_bits = 8, .q_group_size = 32}).message,
              HasSubstr("already quantised (4-bit group 32)"));
}

TEST_F(HfConvert, RefusesAnOutputThatExists) {
  make({.config = config_of("llama")});
  EXPECT_THAT(failure(out("source"), out("source"), {}).message, HasSubstr("exists already"));
  EXPECT_THAT(failure(out("source"), out("source") + "/", {}).message, HasSubstr("exists already"));
  fs::create_directory(out());
  EXPECT_THAT(failure({}).message, HasSubstr("exists already"));
  fs::create_symlink("nowhere", out("link"));
  EXPECT_THAT(failure(out("source"), out("link"), {}).message, HasSubstr("exists already"));
  EXPECT_THAT(failure(out("source"), "", {}).message, HasSubstr("has no name"));
}

TEST_F(HfConvert, RefusesFoldersThatAreBroken) {
  make({.config = config_of("llama")});
  EXPECT_EQ(failure(out("missing"), out(), {}).kind, ErrorKind::not_found);
  fs::rename(out("source") + "/tokenizer.json", out("tokenizer.json"));
  EXPECT_THAT(failure({}).message, HasSubstr("no tokenizer"));
  fs::rename(out("tokenizer.json"), out("source") + "/tokenizer.json");

  io::write_text_file(out("source") + "/model.safetensors.index.json",
                      R"({"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}})");
  EXPECT_THAT(failure({}).message, HasSubstr("model-00002-of-00002.safetensors: missing"));
  fs::remove(out("source") + "/model.safetensors.index.json");

  rewrite([](auto& tensors) { tensors.front().shape = {tensors.front().shape[0] / 2, tensors.front().shape[1] * 2}; });
  EXPECT_THAT(failure({}).message, HasSubstr("expected shape [256, 64], got [128, 128]"));
  rewrite([](auto& tensors) { tensors.front().shape = {256, 64}; });
  expect_loads(out("source"));

  const std::string weights = out("source") + "/model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  EXPECT_THAT(failure({.quantize = true}).message, HasSubstr("model.safetensors"));
}

TEST_F(HfConvert, RefusesValuesThatCannotBeRepresented) {
  make({.config = config_of("llama")});
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  poke(name, {std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(failure({.quantize = true}).message, HasSubstr("tensor '" + name + "': row 0 holds a value that is"));
  poke(name, {3e38f, -3e38f});
  EXPECT_THAT(failure({.quantize = true}).message, HasSubstr("overflows float32"));
  poke(name, {1e5f, 0});
  EXPECT_THAT(failure({.dtype = "float16"}).message, HasSubstr("beyond the range of float16"));
  EXPECT_NO_THROW(convert(out("source"), out(), {.dtype = "bfloat16"}));
}

TEST_F(HfConvert, AnInterruptedConversionLeavesNothing) {
  make({.config = config_of("llama")});
  int calls = 0;
  const auto stop = [&](int64_t, int64_t) {
    if (++calls == 5) throw_error(ErrorKind::cancelled, "stop");
  };
  EXPECT_EQ(failure({.quantize = true, .progress = stop}).kind, ErrorKind::cancelled);
  EXPECT_EQ(calls, 5);
}

TEST_F(HfConvert, ProgressRunsToTheEnd) {
  make({.config = config_of("llama")});
  std::vector<int64_t> done;
  int64_t all = 0;
  const auto report = convert(out("source"), out(), {.quantize = true, .progress = [&](int64_t n, int64_t total) {
                                                       done.push_back(n);
                                                       all = total;
                                                     }});
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), report.bytes);
  EXPECT_EQ(all, report.bytes);
}

TEST_F(HfConvert, CopiesWhatBelongsToTheTokenizer) {
  make({.config = config_of("llama")});
  const std::string source = out("source") + "/";
  for (const char* name : {"chat_template.jinja", "special_tokens_map.json", "merges.txt", "modeling.py", "LICENSE.txt",
                           "adapters.safetensors", "preprocessor_config.json"}) {
    io::write_text_file(source + name, name);
  }
  fs::create_directory(source + "additional_chat_templates");
  io::write_text_file(source + "additional_chat_templates/tool_use.jinja", "tools");
  convert(out("source"), out());
  EXPECT_THAT(io::list_folder(out()),
              ::testing::ElementsAre("README.md", "additional_chat_templates", "chat_template.jinja", "config.json",
                                     "merges.txt", "model.safetensors", "model.safetensors.index.json", "modeling.py",
                                     "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"));
  EXPECT_EQ(io::read_text_file(out() + "/additional_chat_templates/tool_use.jinja"), "tools");
  EXPECT_EQ(io::read_text_file(out() + "/tokenizer.json"), io::read_text_file(source + "tokenizer.json"));
}

}  // namespace
}  // namespace mlxlm
