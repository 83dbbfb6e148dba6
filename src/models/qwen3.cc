// Qwen3 (dense): RMSNorm of each query and key head before rope, no biases.
#include "models/architectures.h"

namespace mlxlm::models {

nn::ModelSpec qwen3(const Config& config, const io::ModelFolder&) {
  const Dimensions d = read_dimensions(config);
  if (config.find("tie_word_embeddings") == nullptr) config.fail("tie_word_embeddings", "true or false");
  nn::ModelSpec spec = decoder(config, d, config.boolean("tie_word_embeddings", false));
  const nn::RopeSpec rope = read_rope(config, d.head_dim, 0);  // there is no default: the config must give one
  for (int64_t i = 0; i < d.layers; ++i) {
    nn::LayerSpec layer = decoder_layer(d, i);
    nn::AttentionSpec& a = layer.attention;
    const std::string prefix = "model.layers." + std::to_string(i) + ".self_attn.";
    a.q_norm = {prefix + "q_norm", d.head_dim, d.eps, 0};
    a.k_norm = {prefix + "k_norm", d.head_dim, d.eps, 0};
    a.rope = rope;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace mlxlm::models
