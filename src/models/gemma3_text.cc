// Gemma 3 (text): scaled embeddings, norms on both sides of each block with weight + 1, q and k norms, and layers that
// alternate between a sliding window with its own rope base and full attention.
#include <bit>
#include <cmath>

#include "models/architectures.h"

namespace mlxlm::models {
namespace {

// √hidden rounded to bfloat16, as the model was trained.
float embedding_scale(int64_t hidden) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(std::sqrt(static_cast<double>(hidden))));
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return std::bit_cast<float>(rounded & 0xffff0000u);
}

// "sliding_window_pattern" p: every p-th layer is full. Newer exports list "layer_types" instead.
bool is_full_layer(const Config& config, int64_t index, int64_t layers) {
  const auto types = config.strings("layer_types");
  if (config.find("sliding_window_pattern") == nullptr && types) {
    if (types->size() != static_cast<size_t>(layers)) {
      config.fail("layer_types", std::to_string(layers) + " entries, one per layer");
    }
    const std::string& type = (*types)[static_cast<size_t>(index)];
    if (type != "full_attention" && type != "sliding_attention") {
      config.fail("layer_types", "\"full_attention\" or \"sliding_attention\" in each entry");
    }
    return type == "full_attention";
  }
  return (index + 1) % config.positive("sliding_window_pattern", 6) == 0;
}

// The local base stands in rope_local_base_freq, or per layer type in the rope_parameters of newer exports.
struct Ropes {
  nn::RopeSpec local, global;
};

Ropes read_ropes(const Config& config, int64_t head_dim) {
  const io::Json* parameters = config.find("rope_parameters");
  if (parameters != nullptr && parameters->is_object() && parameters->contains("full_attention")) {
    // Each entry is a rope section of its own: read it as a config with only that.
    io::Json full = config.json(), sliding = config.json();
    for (io::Json* json : {&full, &sliding}) {
      json->erase("rope_scaling");
      json->erase("rope_theta");
    }
    full["rope_parameters"] = (*parameters)["full_attention"];
    sliding["rope_parameters"] = parameters->value("sliding_attention", io::Json());
    return {read_rope(Config(sliding, config.where()), head_dim, 10000),
            read_rope(Config(full, config.where()), head_dim, 1000000)};
  }
  return {plain_rope(config.positive_number("rope_local_base_freq", 10000), head_dim),
          read_rope(config, head_dim, 1000000)};
}

nn::LayerSpec gemma3_layer(const Dimensions& d, int64_t index) {
  nn::LayerSpec layer = decoder_layer(d, index);
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  layer.attn_norm = {prefix + "input_layernorm", d.hidden, d.eps, 1};
  layer.attn_post_norm = {prefix + "post_attention_layernorm", d.hidden, d.eps, 1};
  layer.mlp_norm = {prefix + "pre_feedforward_layernorm", d.hidden, d.eps, 1};
  layer.mlp_post_norm = {prefix + "post_feedforward_layernorm", d.hidden, d.eps, 1};
  layer.attention.q_norm = {prefix + "self_attn.q_norm", d.head_dim, d.eps, 1};
  layer.attention.k_norm = {prefix + "self_attn.k_norm", d.head_dim, d.eps, 1};
  layer.mlp.activation = Activation::gelu_tanh;
  return layer;
}

// The reference gives every key a default: those of the 1B model.
Dimensions gemma3_dimensions(const Config& config) {
  Dimensions d;
  d.hidden = config.positive("hidden_size", 1152);
  d.layers = config.positive("num_hidden_layers", 26);
  d.intermediate = config.positive("intermediate_size", 6912);
  d.heads = config.positive("num_attention_heads", 4);
  d.kv_heads = config.positive("num_key_value_heads", 1);
  d.head_dim = config.positive("head_dim", 256);
  d.vocab = config.positive("vocab_size", 262144);
  d.eps = static_cast<float>(config.positive_number("rms_norm_eps", 1e-6));
  return d;
}

}  // namespace

nn::ModelSpec gemma3_text(const Config& config, const io::ModelFolder& folder) {
  const Dimensions d = gemma3_dimensions(config);
  nn::ModelSpec spec = decoder(config, d, !folder.tensors.contains("lm_head.weight"));
  spec.final_norm.weight_offset = 1;
  spec.embedding_scale = embedding_scale(d.hidden);
  const Ropes ropes = read_ropes(config, d.head_dim);
  const int64_t window = config.positive("sliding_window", 512);
  const double scalar = config.positive_number("query_pre_attn_scalar", 256);
  for (int64_t i = 0; i < d.layers; ++i) {
    nn::LayerSpec layer = gemma3_layer(d, i);
    const bool full = is_full_layer(config, i, d.layers);
    layer.attention.rope = full ? ropes.global : ropes.local;
    layer.attention.window = full ? 0 : window;
    layer.attention.scale = static_cast<float>(1 / std::sqrt(scalar));
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace mlxlm::models
