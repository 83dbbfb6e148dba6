// Qwen2 and Qwen2.5: Llama with biases on q, k and v. sliding_window is not used, as in the reference.
#include "models/architectures.h"

namespace mlxlm::models {

nn::ModelSpec qwen2(const Config& config, const io::ModelFolder&) {
  const Dimensions d = read_dimensions(config);
  nn::ModelSpec spec = decoder(config, d, config.boolean("tie_word_embeddings", true));
  nn::RopeSpec rope = read_rope(config, d.head_dim, 1000000);
  rope.interleaved = config.boolean("rope_traditional", false);
  for (int64_t i = 0; i < d.layers; ++i) {
    nn::LayerSpec layer = decoder_layer(d, i);
    layer.attention.rope = rope;
    layer.attention.q.bias = layer.attention.k.bias = layer.attention.v.bias = true;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace mlxlm::models
