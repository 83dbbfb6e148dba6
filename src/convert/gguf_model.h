// What a GGUF file's model is in Hugging Face's terms: config.json and the names, shapes and row orders of its weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/gguf.h"
#include "io/json.h"

namespace mlxlm::conversion {

/// One weight of the new folder.
struct WeightPlan {
  const io::GgufTensor* source = nullptr;  ///< into the GgufFile
  std::string name;                        ///< "model.layers.0.self_attn.q_proj.weight"
  /// GGUF interleaves the two halves of each head's rows for llama; this many heads are to be put back, 0: none.
  int64_t interleaved_heads = 0;
  bool minus_one = false;  ///< GGUF holds 1 + the checkpoint's value

  int64_t rows() const { return source->shape.size() == 1 ? 1 : source->shape[0]; }
  int64_t cols() const { return source->shape.back(); }
};

struct ModelPlan {
  std::string architecture;
  std::string model_type;
  io::Json config;                  ///< without quantization, token ids and torch_dtype
  std::vector<WeightPlan> weights;  ///< in the file's order
};

/// Throws Error(unsupported) for an architecture, key or weight format without support, and Error(invalid_value) for
/// missing, unused or misshapen tensors: nothing of the file is silently dropped.
ModelPlan plan_model(const io::GgufFile& gguf);

/// config.json's rope_scaling, or null. `factors` are rope_freqs.weight's values, [head_dim / 2], or empty.
io::Json rope_scaling(const io::GgufFile& gguf, const std::string& architecture, const std::vector<float>& factors,
                      double rope_theta);

}  // namespace mlxlm::conversion
