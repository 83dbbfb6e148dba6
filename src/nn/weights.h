// Binding a ModelSpec to the tensors of a model folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/model_folder.h"
#include "nn/spec.h"
#include "tensor/matrix.h"

namespace mlxlm::nn {

/// A linear layer: the matrix in place, the bias (if any) as float32 [out].
struct Linear {
  Matrix w;
  std::vector<float> bias;
};

/// RMSNorm weights as float32 [size] with the spec's offset added; empty for "no norm".
struct Norm {
  std::vector<float> weight;
  float eps = 0;

  bool present() const { return !weight.empty(); }
};

struct LayerWeights {
  Norm attn_norm, attn_post_norm, mlp_norm, mlp_post_norm, q_norm, k_norm;
  Linear q, k, v, o, gate, up, down;
};

/// All weights of a model. Matrices point into the folder's mapped files, which this keeps alive.
struct Weights {
  std::shared_ptr<const io::ModelFolder> folder;
  Matrix embedding;
  Matrix head;  ///< equal to `embedding` when tied
  Norm final_norm;
  std::vector<LayerWeights> layers;
  int64_t parameters = 0;       ///< logical weights
  int64_t bytes = 0;            ///< of the tensors in use
  int64_t bytes_per_token = 0;  ///< read for one decoded token: all but the embedding rows (a tied head counts)
  int64_t macs_per_token = 0;
  std::string quantization;       ///< e.g. "4-bit group 32"
  DType float_type = DType::f32;  ///< most common float type of the matrices: decides the KV type of `fast`
};

/// Checks that every tensor of the spec is there with the right shape and type, and that none is left over.
/// Throws Error naming file, tensor, expected and got.
Weights bind_weights(std::shared_ptr<const io::ModelFolder> folder, const ModelSpec& spec);

}  // namespace mlxlm::nn
