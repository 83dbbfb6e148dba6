// What becomes of each tensor of a Hugging Face or MLX folder: cast, quantised or dequantised, in mlx-lm's order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/model_folder.h"
#include "io/safetensors_writer.h"
#include "mlxlm/convert.h"
#include "nn/spec.h"

namespace mlxlm::conversion {

enum class Action { cast, quantize, dequantize };
/// Which of the tensors a quantised weight becomes; they follow one another in this order.
enum class QuantPart { codes, scales, biases };

/// A tensor of the new folder.
struct PlannedTensor {
  io::TensorInfo info;
  Action action = Action::cast;
  QuantPart part = QuantPart::codes;       ///< quantize only
  const io::TensorView* source = nullptr;  ///< cast: the tensor; quantize: the dense weight; dequantize: the codes
  const io::TensorView* scales = nullptr;  ///< dequantize only
  const io::TensorView* biases = nullptr;  ///< dequantize only
  QuantFormat format{};                    ///< quantize and dequantize
  DType compute = DType::f32;              ///< the float type in which the weight is quantised or dequantised
};

struct HfPlan {
  std::vector<PlannedTensor> tensors;
  io::Json quantization;          ///< the section of the new config.json, or null
  std::string quantization_text;  ///< for people: "4-bit group 64", or "none"
  int64_t weights = 0;            ///< scales and biases not counted
};

/// Throws Error(invalid_value) for options that contradict each other or that this version does not know, before any
/// file is touched.
void check_options(const ConvertOptions& options);

/// `folder` must have passed nn::bind_weights with `spec`. Views point into the folder. Throws Error when the options
/// ask for what the folder cannot give.
HfPlan plan_hf(const io::ModelFolder& folder, const nn::ModelSpec& spec, const ConvertOptions& options);

}  // namespace mlxlm::conversion
