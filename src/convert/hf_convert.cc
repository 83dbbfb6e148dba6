// convert(): a Hugging Face or MLX folder becomes a new folder in MLX format.
#include <vector>

#include "base/float_control.h"
#include "convert/hf_files.h"
#include "convert/hf_plan.h"
#include "convert/hf_weights.h"
#include "convert/new_folder.h"
#include "convert/weight_files.h"
#include "io/model_folder.h"
#include "mlxlm/convert.h"
#include "models/registry.h"
#include "nn/weights.h"

namespace mlxlm {
namespace conversion {
namespace {

void write_weights(const NewFolder& folder, const io::ModelFolder& source, const HfPlan& plan,
                   const ConvertOptions& options, ConvertReport& report) {
  std::vector<io::TensorInfo> infos;
  infos.reserve(plan.tensors.size());
  for (const PlannedTensor& tensor : plan.tensors) infos.push_back(tensor.info);
  TensorProducer producer(source, options.threads);
  const WeightFiles files =
      write_weight_files(folder, infos, {report.parameters, options.max_shard_bytes, options.progress},
                         [&](size_t index, TensorSink& sink) { producer.produce(plan.tensors[index], sink); });
  report.bytes = files.bytes;
  report.shards = files.shards;
  report.bits_per_weight = 8.0 * static_cast<double>(report.bytes) / static_cast<double>(report.parameters);
}

ConvertReport convert_folder(const std::string& hf_path, const std::string& mlx_path, const ConvertOptions& options) {
  const FloatControl float_control;
  check_options(options);
  check_new_folder(mlx_path);
  const auto source = io::open_model_folder(hf_path);
  const nn::ModelSpec spec = models::build_spec(*source);
  const int64_t parameters = nn::bind_weights(source, spec).parameters;  // checks every tensor's shape and type
  const HfPlan plan = plan_hf(*source, spec, options);
  const std::vector<std::string> others = files_to_copy(hf_path);

  ConvertReport report;
  report.path = mlx_path;
  report.model_type = spec.model_type;
  report.quantization = plan.quantization_text;
  report.tensors = plan.weights;
  report.parameters = parameters;
  NewFolder folder(mlx_path);
  write_weights(folder, *source, plan, options, report);
  io::write_text_file(folder.file("config.json"), json_text(new_config(*source, plan.quantization)));
  copy_files(hf_path, others, folder);
  io::write_text_file(folder.file("README.md"), model_card());
  folder.commit();
  return report;
}

}  // namespace
}  // namespace conversion

ConvertReport convert(const std::string& hf_path, const std::string& mlx_path, const ConvertOptions& options) {
  return conversion::convert_folder(hf_path, mlx_path, options);
}

}  // namespace mlxlm
