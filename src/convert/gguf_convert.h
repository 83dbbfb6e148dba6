// GGUF → model folder in MLX format, without loss: every weight keeps its exact value.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace mlxlm::convert {

struct GgufConvertOptions {
  int64_t max_shard_bytes = int64_t{5} << 30;  ///< a larger model is split into files of at most this size
  /// Called now and then with the bytes of weights written so far and in all.
  std::function<void(int64_t done, int64_t total)> progress{};
};

struct ConvertReport {
  std::string path;          ///< the new folder
  std::string architecture;  ///< general.architecture of the GGUF: "llama", "qwen2", "qwen3" or "gemma3"
  std::string model_type;    ///< of config.json
  std::string quantization;  ///< e.g. "4-bit group 32 and 8-bit group 32", or "none"
  int64_t tensors = 0;       ///< weights converted; scales and biases not counted
  int64_t parameters = 0;    ///< logical weights
  int64_t bytes = 0;         ///< of the weight data
  int shards = 0;            ///< weight files
};

/// Converts `gguf` (Q4_0, Q4_1, Q8_0, F32, F16 or BF16 weights) into the new folder `out_dir`: config.json,
/// model*.safetensors with their index, tokenizer.json, tokenizer_config.json and generation_config.json.
///
/// Q4_0, Q4_1 → affine 4-bit, Q8_0 → affine 8-bit, group size 32, with the float16 scales of the file; a weight whose
/// bias would overflow float16 gets float32 scales and biases. Dense weights stay as they are, except gemma3's norms,
/// whose added 1 is taken off again.
///
/// `out_dir` must not exist, or be empty. It appears under its name only when it is complete. One row block of one
/// weight is in memory at a time. Throws Error naming the file and the key or tensor.
ConvertReport convert_gguf(const std::string& gguf, const std::string& out_dir, const GgufConvertOptions& options = {});

}  // namespace mlxlm::convert
