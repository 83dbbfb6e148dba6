#include "convert/gguf_convert.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "convert/gguf_model.h"
#include "convert/gguf_tokenizer.h"
#include "convert/gguf_weights.h"
#include "io/files.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/safetensors_writer.h"

namespace mlxlm::convert {
namespace {

namespace fs = std::filesystem;
using io::Json;

constexpr int64_t kChunkBytes = int64_t{1} << 20;  // enough for long writes, small beside any model

/// A folder that is filled under a temporary name; what is not committed is removed.
class NewFolder {
 public:
  explicit NewFolder(fs::path target) : target_(std::move(target)), temporary_(io::temporary_name(target_.string())) {
    std::error_code error;
    if (fs::exists(target_, error) && !(fs::is_directory(target_, error) && fs::is_empty(target_, error))) {
      throw_invalid("{}: exists already; give a new folder, or remove it first", target_.string());
    }
    fs::create_directories(temporary_, error);
    if (error) throw_error(ErrorKind::io, "{}: cannot create the folder: {}", temporary_.string(), error.message());
  }
  ~NewFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(temporary_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  std::string file(const std::string& name) const { return (temporary_ / name).string(); }

  void commit() {
    std::error_code error;
    fs::rename(temporary_, target_, error);
    if (error)
      throw_error(ErrorKind::io, "{}: cannot rename from {}: {}", target_.string(), temporary_.string(),
                  error.message());
    committed_ = true;
  }

 private:
  fs::path target_;
  fs::path temporary_;
  bool committed_ = false;
};

using Shard = std::vector<OutputTensor>;

std::vector<Shard> make_shards(std::vector<OutputTensor> tensors, int64_t max_bytes) {
  std::vector<Shard> shards(1);
  int64_t size = 0;
  for (OutputTensor& tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.info.bytes());
    if (!shards.back().empty() && size + bytes > max_bytes) {
      shards.emplace_back();
      size = 0;
    }
    size += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string shard_name(size_t i, size_t n) {
  return n == 1 ? "model.safetensors" : format_text("model-{:05}-of-{:05}.safetensors", i + 1, n);
}

/// Writes the weights of one conversion.
class WeightWriter {
 public:
  WeightWriter(const NewFolder& folder, const GgufConvertOptions& options, ConvertReport& report)
      : folder_(folder), options_(options), report_(report) {}

  void write(const ModelPlan& plan, const std::string& gguf_path) {
    std::vector<OutputTensor> tensors;
    for (const WeightPlan& weight : plan.weights) {
      for (OutputTensor& tensor : output_tensors(weight, gguf_path)) {
        report_.bytes += static_cast<int64_t>(tensor.info.bytes());
        tensors.push_back(std::move(tensor));
      }
      report_.parameters += weight.rows() * weight.cols();
      ++report_.tensors;
    }
    const auto shards = make_shards(std::move(tensors), options_.max_shard_bytes);
    report_.shards = static_cast<int>(shards.size());
    std::map<std::string, std::string> weight_map;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name = shard_name(i, shards.size());
      write_shard(shards[i], name);
      for (const OutputTensor& tensor : shards[i]) weight_map[tensor.info.name] = name;
    }
    std::vector<std::pair<std::string, Json>> members(weight_map.begin(), weight_map.end());
    const Json index = {{"metadata", {{"total_size", report_.bytes}, {"total_parameters", report_.parameters}}},
                        {"weight_map", io::make_object(std::move(members))}};
    io::write_text_file(folder_.file("model.safetensors.index.json"), index.dump(4));
  }

 private:
  void write_shard(const Shard& shard, const std::string& name) {
    std::vector<io::TensorInfo> infos;
    for (const OutputTensor& tensor : shard) infos.push_back(tensor.info);
    io::SafetensorsWriter writer(folder_.file(name), infos, {{"format", "mlx"}});
    for (const OutputTensor& tensor : shard) write_tensor(writer, tensor);
    writer.finish();
  }

  void write_tensor(io::SafetensorsWriter& writer, const OutputTensor& tensor) {
    const int64_t rows = tensor.plan.rows();
    const int64_t row_bytes = static_cast<int64_t>(tensor.info.bytes()) / rows;
    const int64_t step = std::max<int64_t>(1, kChunkBytes / row_bytes);
    std::vector<std::byte> chunk;
    for (int64_t row = 0; row < rows; row += step) {
      chunk.clear();
      append_rows(tensor, row, std::min(rows, row + step), chunk);
      writer.write(chunk);
      done_ += static_cast<int64_t>(chunk.size());
      if (options_.progress) options_.progress(done_, report_.bytes);
    }
  }

  const NewFolder& folder_;
  const GgufConvertOptions& options_;
  ConvertReport& report_;
  int64_t done_ = 0;
};

/// {"group_size": 32, "bits": …, "<module>": …}: the width that most weights have stands for all, the others are
/// listed. Null when nothing is quantised.
Json quantization_config(const ModelPlan& plan, std::string& text) {
  std::map<int, int64_t> weights_of;  // by bits
  for (const WeightPlan& weight : plan.weights) {
    if (const int bits = weight_bits(weight)) weights_of[bits] += weight.rows() * weight.cols();
  }
  if (weights_of.empty()) {
    text = "none";
    return nullptr;
  }
  int usual = 0;
  for (const auto& [bits, n] : weights_of) {
    if (usual == 0 || n > weights_of[usual]) usual = bits;
    text += format_text("{}{}-bit group {}", text.empty() ? "" : " and ", bits, kGgufGroupSize);
  }
  Json json = {{"group_size", kGgufGroupSize}, {"bits", usual}, {"mode", "affine"}};
  for (const WeightPlan& weight : plan.weights) {
    const int bits = weight_bits(weight);
    const bool is_matrix = weight.source->shape.size() == 2;
    const std::string module = weight.name.substr(0, weight.name.rfind('.'));
    if (bits == 0 && is_matrix) json[module] = false;
    if (bits != 0 && bits != usual) json[module] = {{"group_size", kGgufGroupSize}, {"bits", bits}};
  }
  return json;
}

const char* torch_dtype(const ModelPlan& plan) {
  const auto largest = std::max_element(plan.weights.begin(), plan.weights.end(),
                                        [](const auto& a, const auto& b) { return a.source->bytes < b.source->bytes; });
  switch (largest->source->type) {
    case io::GgufType::f32:
      return "float32";
    case io::GgufType::bf16:
      return "bfloat16";
    default:
      return "float16";
  }
}

Json sorted(const Json& object) {
  std::map<std::string, Json> members;
  for (const auto& [key, value] : object.items()) members[key] = value;
  return io::make_object({members.begin(), members.end()});
}

Json eos_json(const std::vector<int64_t>& ids) { return ids.size() == 1 ? Json(ids.front()) : Json(ids); }

void write_configs(const NewFolder& folder, const ModelPlan& plan, const TokenizerPlan& tokenizer,
                   std::string& quantization) {
  Json config = plan.config;
  config["torch_dtype"] = torch_dtype(plan);
  if (tokenizer.bos) config["bos_token_id"] = *tokenizer.bos;
  if (tokenizer.pad) config["pad_token_id"] = *tokenizer.pad;
  if (!tokenizer.eos.empty()) config["eos_token_id"] = eos_json(tokenizer.eos);
  if (Json json = quantization_config(plan, quantization); !json.is_null()) {
    config["quantization"] = json;
    config["quantization_config"] = std::move(json);
  }
  io::write_text_file(folder.file("config.json"), sorted(config).dump(4));

  Json generation = Json::object();
  if (tokenizer.bos) generation["bos_token_id"] = *tokenizer.bos;
  if (!tokenizer.eos.empty()) generation["eos_token_id"] = eos_json(tokenizer.eos);
  if (tokenizer.pad) generation["pad_token_id"] = *tokenizer.pad;
  io::write_text_file(folder.file("generation_config.json"), generation.dump(4));
  io::write_text_file(folder.file("tokenizer.json"), tokenizer.tokenizer.dump());
  io::write_text_file(folder.file("tokenizer_config.json"), sorted(tokenizer.config).dump(4));
}

fs::path without_trailing_slash(const std::string& path) {
  fs::path result(path);
  return result.has_filename() ? result : result.parent_path();
}

}  // namespace

ConvertReport convert_gguf(const std::string& gguf, const std::string& out_dir, const GgufConvertOptions& options) {
  if (out_dir.empty()) throw_invalid("convert: the output folder has no name");
  const auto file = io::GgufFile::open(gguf);
  const ModelPlan plan = plan_model(file);
  const TokenizerPlan tokenizer = plan_tokenizer(file, plan.config.at("max_position_embeddings").get<int64_t>());
  const auto vocab = plan.config.at("vocab_size").get<int64_t>();
  if (const auto tokens = static_cast<int64_t>(file.strings("tokenizer.ggml.tokens").size()); tokens > vocab) {
    throw_invalid("{}: {} tokens, but the embedding has {} rows", gguf, tokens, vocab);
  }

  ConvertReport report;
  report.path = out_dir;
  report.architecture = plan.architecture;
  report.model_type = plan.model_type;
  NewFolder folder(without_trailing_slash(out_dir));
  WeightWriter(folder, options, report).write(plan, gguf);
  write_configs(folder, plan, tokenizer, report.quantization);
  folder.commit();
  return report;
}

}  // namespace mlxlm::convert
