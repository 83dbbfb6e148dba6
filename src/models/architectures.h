// The builders of all architectures, one file each, and what most of them share.
#pragma once

#include "models/config.h"
#include "models/registry.h"

namespace mlxlm::models {

nn::ModelSpec gemma3_text(const Config& config, const io::ModelFolder& folder);
nn::ModelSpec llama(const Config& config, const io::ModelFolder& folder);
nn::ModelSpec qwen2(const Config& config, const io::ModelFolder& folder);
nn::ModelSpec qwen3(const Config& config, const io::ModelFolder& folder);

/// The sizes every dense decoder names alike.
struct Dimensions {
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  ///< the config's, else hidden / heads
  int64_t vocab = 0;
  float eps = 0;
};
Dimensions read_dimensions(const Config& config);

/// A model with its embedding, final norm and head; no layers yet. Tied: logits = h · Eᵀ, and lm_head.* is ignored.
nn::ModelSpec decoder(const Config& config, const Dimensions& dims, bool tied);

/// A pre-norm layer "model.layers.I": RMSNorm, attention, RMSNorm, SwiGLU; no biases, full attention, no rope yet.
nn::LayerSpec decoder_layer(const Dimensions& dims, int64_t index);

}  // namespace mlxlm::models
