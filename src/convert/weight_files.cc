#include "convert/weight_files.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace mlxlm::conversion {
namespace {

using io::Json;

/// The first tensor of each file; the end of the last one is the end of all.
std::vector<size_t> cut(std::span<const io::TensorInfo> tensors, int64_t max_bytes) {
  std::vector<size_t> starts = {0};
  int64_t size = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = static_cast<int64_t>(tensors[i].bytes());
    if (i > starts.back() && size + bytes > max_bytes) {
      starts.push_back(i);
      size = 0;
    }
    size += bytes;
  }
  return starts;
}

std::string shard_name(size_t i, size_t n) {
  return n == 1 ? "model.safetensors" : format_text("model-{:05}-of-{:05}.safetensors", i + 1, n);
}

/// Passes the data on and reports the progress.
class CountingSink final : public TensorSink {
 public:
  CountingSink(int64_t total, const ConvertProgress& progress) : total_(total), progress_(progress) {}

  void set_file(io::SafetensorsWriter* writer) { writer_ = writer; }

  void write(std::span<const std::byte> bytes) override {
    writer_->write(bytes);
    done_ += static_cast<int64_t>(bytes.size());
    if (progress_) progress_(done_, total_);
  }

 private:
  io::SafetensorsWriter* writer_ = nullptr;
  int64_t total_;
  int64_t done_ = 0;
  const ConvertProgress& progress_;
};

}  // namespace

WeightFiles write_weight_files(const NewFolder& folder, std::span<const io::TensorInfo> tensors,
                               const WeightFileOptions& options,
                               const std::function<void(size_t index, TensorSink& sink)>& produce) {
  if (options.max_shard_bytes < 1) {
    throw_invalid("convert: max_shard_bytes: expected at least 1, got {}", options.max_shard_bytes);
  }
  WeightFiles result;
  for (const io::TensorInfo& tensor : tensors) result.bytes += static_cast<int64_t>(tensor.bytes());
  const std::vector<size_t> starts = cut(tensors, options.max_shard_bytes);
  result.shards = static_cast<int>(starts.size());

  CountingSink sink(result.bytes, options.progress);
  std::map<std::string, std::string> weight_map;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : tensors.size();
    const std::string name = shard_name(i, starts.size());
    io::SafetensorsWriter writer(folder.file(name), tensors.subspan(starts[i], end - starts[i]), {{"format", "mlx"}});
    sink.set_file(&writer);
    for (size_t tensor = starts[i]; tensor < end; ++tensor) {
      produce(tensor, sink);
      weight_map[tensors[tensor].name] = name;
    }
    writer.finish();
  }
  std::vector<std::pair<std::string, Json>> members(weight_map.begin(), weight_map.end());
  const Json index = {{"metadata", {{"total_size", result.bytes}, {"total_parameters", options.parameters}}},
                      {"weight_map", io::make_object(std::move(members))}};
  io::write_text_file(folder.file("model.safetensors.index.json"), json_text(index));
  return result;
}

}  // namespace mlxlm::conversion
