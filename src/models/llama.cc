// Llama and what follows it (Mistral, SmolLM2, Yi, …): pre-norm, grouped-query attention, rope, SwiGLU.
#include "base/error.h"
#include "models/architectures.h"

namespace mlxlm::models {
namespace {

// sliding_window counts only where layer_types says so, as in the reference: Mistral's config sets it and it is
// ignored.
int64_t window_of_layer(const Config& config, const std::vector<std::string>& types, size_t index) {
  const std::string& type = types[index];
  if (type == "sliding_attention") return config.positive("sliding_window");
  if (type == "full_attention") return 0;
  throw_error(ErrorKind::unsupported,
              "{}: layer_types[{}]: expected \"full_attention\" or \"sliding_attention\", got \"{}\"", config.where(),
              index, type);
}

}  // namespace

nn::ModelSpec llama(const Config& config, const io::ModelFolder&) {
  const Dimensions d = read_dimensions(config);
  nn::ModelSpec spec = decoder(config, d, config.boolean("tie_word_embeddings", true));
  nn::RopeSpec rope = read_rope(config, d.head_dim, 10000);
  rope.interleaved = config.boolean("rope_traditional", false);
  const bool attention_bias = config.boolean("attention_bias", false);
  const bool mlp_bias = config.boolean("mlp_bias", false);
  const auto types = config.strings("layer_types");
  if (types && types->size() != static_cast<size_t>(d.layers)) {
    config.fail("layer_types", std::to_string(d.layers) + " entries, one per layer");
  }
  for (int64_t i = 0; i < d.layers; ++i) {
    nn::LayerSpec layer = decoder_layer(d, i);
    nn::AttentionSpec& a = layer.attention;
    a.rope = rope;
    if (types) a.window = window_of_layer(config, *types, static_cast<size_t>(i));
    a.q.bias = a.k.bias = a.v.bias = a.o.bias = attention_bias;
    layer.mlp.gate.bias = layer.mlp.up.bias = layer.mlp.down.bias = mlp_bias;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace mlxlm::models
