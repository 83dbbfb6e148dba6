// What the executor can run: a model as data. A file in src/models turns a config.json into a ModelSpec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace mlxlm::nn {

/// y = x·Wᵀ (+ bias). `name` is the checkpoint's module path: NAME.weight (and .scales, .biases), NAME.bias.
struct LinearSpec {
  std::string name;
  int64_t out = 0;
  int64_t in = 0;
  bool bias = false;
};

/// RMSNorm over the last `size` values with weight NAME.weight [size] + weight_offset. An empty name means "no norm".
struct NormSpec {
  std::string name;
  int64_t size = 0;
  float eps = 1e-6f;
  float weight_offset = 0;  ///< 1 for the Gemma family, whose checkpoints store weight − 1

  bool present() const { return !name.empty(); }
};

/// Rotary position embedding of the first 2·inv_freq.size() dims of a head: angle = position · inv_freq[i] in float32.
struct RopeSpec {
  std::vector<float> inv_freq;  ///< [half]; empty: no rotation
  float magnitude = 1;          ///< multiplies the rotated dims (yarn's mscale, longrope's factor)
  bool interleaved = false;     ///< pairs (2i, 2i + 1) instead of (i, i + half)
  /// Dynamic NTK scaling: past max_position the base grows with the position; inv_freq holds the frequencies before it.
  struct Dynamic {
    double base = 0;  ///< 0: not dynamic
    double factor = 1;
    int64_t max_position = 0;
  } dynamic;

  bool operator==(const RopeSpec& other) const {
    return inv_freq == other.inv_freq && magnitude == other.magnitude && interleaved == other.interleaved &&
           dynamic.base == other.dynamic.base && dynamic.factor == other.dynamic.factor &&
           dynamic.max_position == other.dynamic.max_position;
  }
};

/// Grouped-query attention. q rows are [n_heads, head_dim], k and v rows [n_kv_heads, head_dim].
struct AttentionSpec {
  LinearSpec q, k, v, o;
  NormSpec q_norm, k_norm;  ///< over head_dim, before rope
  RopeSpec rope;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1;     ///< multiplies the scores
  float softcap = 0;   ///< 0: none; else score = softcap · tanh(score / softcap)
  int64_t window = 0;  ///< 0: a query sees every key up to itself; else the last `window`, itself included
};

/// down(act(gate(x)) · up(x))
struct MlpSpec {
  LinearSpec gate, up, down;
  Activation activation = Activation::silu;
};

/// x += attn_post_norm(attention(attn_norm(x))); x += mlp_post_norm(mlp(mlp_norm(x)))
struct LayerSpec {
  NormSpec attn_norm, attn_post_norm, mlp_norm, mlp_post_norm;
  AttentionSpec attention;
  MlpSpec mlp;
};

struct ModelSpec {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_context = 0;    ///< 0: the config does not say
  LinearSpec embedding;       ///< NAME.weight [vocab_size, hidden_size]
  float embedding_scale = 1;  ///< multiplies the embeddings
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
  LinearSpec head;          ///< an empty name: tied to the embedding
  float logit_softcap = 0;  ///< 0: none
  /// Tensors that checkpoints may carry and the model does not use, as name suffixes.
  std::vector<std::string> ignored_suffixes = {"rotary_emb.inv_freq"};
  /// The same as prefixes, e.g. "lm_head." of a tied model.
  std::vector<std::string> ignored_prefixes;

  bool tied() const { return head.name.empty(); }
};

}  // namespace mlxlm::nn
