#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/architectures.h"

namespace mlxlm::models {

Dimensions read_dimensions(const Config& config) {
  Dimensions d;
  d.hidden = config.positive("hidden_size");
  d.layers = config.positive("num_hidden_layers");
  d.intermediate = config.positive("intermediate_size");
  d.heads = config.positive("num_attention_heads");
  d.kv_heads = config.positive("num_key_value_heads", d.heads);
  d.vocab = config.positive("vocab_size");
  d.head_dim = config.positive("head_dim", std::max<int64_t>(1, d.hidden / d.heads));
  d.eps = static_cast<float>(config.positive_number("rms_norm_eps", 1e-6));
  if (config.find("head_dim") == nullptr && d.hidden % d.heads != 0) {
    throw_invalid("{}: hidden_size ({}) is not a multiple of num_attention_heads ({}) and there is no head_dim",
                  config.where(), d.hidden, d.heads);
  }
  return d;
}

nn::ModelSpec decoder(const Config& config, const Dimensions& d, bool tied) {
  nn::ModelSpec spec;
  spec.vocab_size = d.vocab;
  spec.hidden_size = d.hidden;
  spec.max_context = config.positive("max_position_embeddings", 0);
  spec.embedding = {"model.embed_tokens", d.vocab, d.hidden, false};
  spec.final_norm = {"model.norm", d.hidden, d.eps, 0};
  if (tied) {
    spec.ignored_prefixes.emplace_back("lm_head.");
  } else {
    spec.head = {"lm_head", d.vocab, d.hidden, false};
  }
  return spec;
}

nn::LayerSpec decoder_layer(const Dimensions& d, int64_t index) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  nn::LayerSpec layer;
  layer.attn_norm = {prefix + "input_layernorm", d.hidden, d.eps, 0};
  layer.mlp_norm = {prefix + "post_attention_layernorm", d.hidden, d.eps, 0};
  nn::AttentionSpec& a = layer.attention;
  a.q = {prefix + "self_attn.q_proj", d.heads * d.head_dim, d.hidden, false};
  a.k = {prefix + "self_attn.k_proj", d.kv_heads * d.head_dim, d.hidden, false};
  a.v = {prefix + "self_attn.v_proj", d.kv_heads * d.head_dim, d.hidden, false};
  a.o = {prefix + "self_attn.o_proj", d.hidden, d.heads * d.head_dim, false};
  a.n_heads = d.heads;
  a.n_kv_heads = d.kv_heads;
  a.head_dim = d.head_dim;
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d.head_dim)));
  layer.mlp.gate = {prefix + "mlp.gate_proj", d.intermediate, d.hidden, false};
  layer.mlp.up = {prefix + "mlp.up_proj", d.intermediate, d.hidden, false};
  layer.mlp.down = {prefix + "mlp.down_proj", d.hidden, d.intermediate, false};
  return layer;
}

}  // namespace mlxlm::models
