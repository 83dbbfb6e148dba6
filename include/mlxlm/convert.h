// Making model folders in MLX format: from Hugging Face checkpoints (in another float type, quantised or dequantised)
// and from GGUF files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace mlxlm {

/// Affine quantisation: groups of weights share a scale and a bias, each weight is a code; weight = code · scale +
/// bias.
struct QuantFormat {
  int bits = 4;         ///< per code: 2, 3, 4, 5, 6 or 8
  int group_size = 64;  ///< 32, 64 or 128
};

/// What becomes of one linear layer or embedding.
struct QuantChoice {
  bool quantize = true;
  std::optional<QuantFormat> format{};  ///< none: the conversion's q_bits and q_group_size
};

/// Called on the caller's thread with the bytes of weights written so far and in all. An exception that it throws stops
/// the conversion, leaves nothing behind and reaches the caller.
using ConvertProgress = std::function<void(int64_t done, int64_t total)>;

/// The options of mlx_lm.convert, under the same names.
struct ConvertOptions {
  bool quantize = false;
  int q_bits = 0;                 ///< 0: 4
  int q_group_size = 0;           ///< 0: 64
  std::string q_mode = "affine";  ///< no other mode is supported
  std::string quant_predicate{};  ///< a recipe: "mixed_2_6", "mixed_3_4", "mixed_3_6" or "mixed_4_6"; empty: none
  /// Instead of a recipe: decides for the module at `path`, e.g. "model.layers.0.mlp.up_proj". Empty: quantise all.
  std::function<QuantChoice(const std::string& path)> choose{};
  /// Float type of what is not quantised, and of scales and biases: "float16", "bfloat16" or "float32". Empty:
  /// config.json's torch_dtype if it is one of these, else every tensor keeps its type.
  std::string dtype{};
  bool dequantize = false;
  int threads = 0;                             ///< 0: one per usable core; never changes the result
  int64_t max_shard_bytes = int64_t{5} << 30;  ///< a larger model is split into files of at most this size
  ConvertProgress progress{};
};

struct GgufConvertOptions {
  int64_t max_shard_bytes = int64_t{5} << 30;
  ConvertProgress progress{};
};

/// What was made.
struct ConvertReport {
  std::string path;          ///< the new folder
  std::string architecture;  ///< GGUF: general.architecture, e.g. "gemma3"; else empty
  std::string model_type;    ///< of config.json
  std::string quantization;  ///< e.g. "4-bit group 32 and 8-bit group 32", or "none"
  int64_t tensors = 0;       ///< weights; scales and biases of quantised ones not counted
  int64_t parameters = 0;    ///< logical weights
  int64_t bytes = 0;         ///< of the weight data
  double bits_per_weight = 0;
  int shards = 0;  ///< weight files
};

/// Converts the folder `hf_path` (config.json, *.safetensors, tokenizer files) into the new folder `mlx_path`. Codes,
/// scales and biases are bit for bit those of MLX. Layers whose width is no multiple of the group size stay dense. Of a
/// folder that is partly quantised, `quantize` takes the rest.
///
/// `mlx_path` must not exist; it appears under its name only when it is complete. Memory: a few blocks of rows, and the
/// scales of one weight. Throws Error naming the file and the tensor, key or option.
ConvertReport convert(const std::string& hf_path, const std::string& mlx_path = "mlx_model",
                      const ConvertOptions& options = {});

/// Converts `gguf` (Q4_0, Q4_1, Q8_0, F32, F16 or BF16 weights) into the new folder `mlx_path`, without loss: every
/// weight keeps its exact value.
///
/// Q4_0, Q4_1 → affine 4-bit, Q8_0 → affine 8-bit, group size 32, with the float16 scales of the file; a weight whose
/// bias would overflow float16 gets float32 scales and biases. Dense weights stay as they are, except gemma3's norms,
/// whose added 1 is taken off again. Output, memory and errors as with convert().
ConvertReport convert_gguf(const std::string& gguf, const std::string& mlx_path = "mlx_model",
                           const GgufConvertOptions& options = {});

}  // namespace mlxlm
