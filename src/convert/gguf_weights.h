// Repacking GGUF's blocks as MLX's affine-quantised matrices, row by row, without loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convert/gguf_model.h"
#include "io/safetensors_writer.h"

namespace mlxlm::conversion {

constexpr int64_t kGgufGroupSize = 32;  ///< weights that share a scale, in GGUF's blocks and in the result

/// A tensor of the new folder: a dense weight, or one of the three of a quantised one.
enum class Part { dense, codes, scales, biases };
struct OutputTensor {
  WeightPlan plan;
  Part part = Part::dense;
  io::TensorInfo info;
};

/// 4 or 8, or 0 for a dense weight.
int weight_bits(const WeightPlan& plan);

/// The tensors that one weight becomes. Reads the scales of a quantised weight: they must be finite, and where a bias
/// (−8 or −128 times the scale) would overflow float16, scales and biases are float32.
std::vector<OutputTensor> output_tensors(const WeightPlan& plan, const std::string& path);

/// Appends the bytes of rows [begin, end) to `out`.
void append_rows(const OutputTensor& tensor, int64_t begin, int64_t end, std::vector<std::byte>& out);

}  // namespace mlxlm::conversion
