// convert_gguf(): a GGUF file becomes a model folder.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "convert/gguf_model.h"
#include "convert/gguf_tokenizer.h"
#include "convert/gguf_weights.h"
#include "convert/new_folder.h"
#include "convert/weight_files.h"
#include "io/gguf.h"
#include "io/json.h"
#include "mlxlm/convert.h"

namespace mlxlm {
namespace conversion {
namespace {

using io::Json;

constexpr int64_t kChunkBytes = int64_t{1} << 20;  // enough for long writes, small beside any model

/// Writes the tensors of the plan and fills in the report's counts.
void write_weights(const NewFolder& folder, const ModelPlan& plan, const std::string& gguf_path,
                   const GgufConvertOptions& options, ConvertReport& report) {
  std::vector<OutputTensor> tensors;
  std::vector<io::TensorInfo> infos;
  for (const WeightPlan& weight : plan.weights) {
    for (OutputTensor& tensor : output_tensors(weight, gguf_path)) {
      infos.push_back(tensor.info);
      tensors.push_back(std::move(tensor));
    }
    report.parameters += weight.rows() * weight.cols();
    ++report.tensors;
  }
  const auto produce = [&](size_t index, TensorSink& sink) {
    const OutputTensor& tensor = tensors[index];
    const int64_t rows = tensor.plan.rows();
    const int64_t step = std::max<int64_t>(1, kChunkBytes / (static_cast<int64_t>(tensor.info.bytes()) / rows));
    std::vector<std::byte> chunk;
    for (int64_t row = 0; row < rows; row += step) {
      chunk.clear();
      append_rows(tensor, row, std::min(rows, row + step), chunk);
      sink.write(chunk);
    }
  };
  const WeightFiles files =
      write_weight_files(folder, infos, {report.parameters, options.max_shard_bytes, options.progress}, produce);
  report.bytes = files.bytes;
  report.shards = files.shards;
  report.bits_per_weight = 8.0 * static_cast<double>(report.bytes) / static_cast<double>(report.parameters);
}

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
  io::write_text_file(folder.file("config.json"), json_text(sorted(config)));

  Json generation = Json::object();
  if (tokenizer.bos) generation["bos_token_id"] = *tokenizer.bos;
  if (!tokenizer.eos.empty()) generation["eos_token_id"] = eos_json(tokenizer.eos);
  if (tokenizer.pad) generation["pad_token_id"] = *tokenizer.pad;
  io::write_text_file(folder.file("generation_config.json"), json_text(generation));
  io::write_text_file(folder.file("tokenizer.json"), tokenizer.tokenizer.dump());
  io::write_text_file(folder.file("tokenizer_config.json"), json_text(sorted(tokenizer.config)));
}

ConvertReport convert_file(const std::string& gguf, const std::string& mlx_path, const GgufConvertOptions& options) {
  check_new_folder(mlx_path);
  const auto file = io::GgufFile::open(gguf);
  const ModelPlan plan = plan_model(file);
  const TokenizerPlan tokenizer = plan_tokenizer(file, plan.config.at("max_position_embeddings").get<int64_t>());
  const auto vocab = plan.config.at("vocab_size").get<int64_t>();
  if (const auto tokens = static_cast<int64_t>(file.strings("tokenizer.ggml.tokens").size()); tokens > vocab) {
    throw_invalid("{}: {} tokens, but the embedding has {} rows", gguf, tokens, vocab);
  }

  ConvertReport report;
  report.path = mlx_path;
  report.architecture = plan.architecture;
  report.model_type = plan.model_type;
  NewFolder folder(mlx_path);
  write_weights(folder, plan, gguf, options, report);
  write_configs(folder, plan, tokenizer, report.quantization);
  folder.commit();
  return report;
}

}  // namespace
}  // namespace conversion

ConvertReport convert_gguf(const std::string& gguf, const std::string& mlx_path, const GgufConvertOptions& options) {
  return conversion::convert_file(gguf, mlx_path, options);
}

}  // namespace mlxlm
