#include "models/registry.h"

#include "base/error.h"
#include "models/architectures.h"

namespace mlxlm::models {
namespace {

constexpr ModelType kModelTypes[] = {
    {"gemma3_text", gemma3_text}, {"iquestcoder", llama}, {"llama", llama},
    {"mistral", llama},           {"qwen2", qwen2},       {"qwen3", qwen3},
};

void check_attention(const Config& config, const nn::ModelSpec& spec) {
  for (const nn::LayerSpec& layer : spec.layers) {
    const nn::AttentionSpec& a = layer.attention;
    if (a.n_heads % a.n_kv_heads != 0) {
      throw_invalid("{}: num_attention_heads ({}) is not a multiple of num_key_value_heads ({})", config.where(),
                    a.n_heads, a.n_kv_heads);
    }
    if (a.head_dim % 8 != 0 || a.head_dim > 512) {
      throw_invalid("{}: head_dim: expected a multiple of 8 up to 512, got {}", config.where(), a.head_dim);
    }
  }
}

}  // namespace

std::span<const ModelType> model_types() { return kModelTypes; }

nn::ModelSpec build_spec(const io::ModelFolder& folder) {
  const Config config(folder.config, folder.path + "/config.json");
  if (!folder.config.is_object()) throw_invalid("{}: expected a JSON object", config.where());
  const std::string type = config.string("model_type", "");
  for (const ModelType& known : kModelTypes) {
    if (type != known.name) continue;
    nn::ModelSpec spec = known.build(config, folder);
    spec.model_type = type;
    check_attention(config, spec);
    return spec;
  }
  std::string names;
  for (const ModelType& known : kModelTypes) names += (names.empty() ? "" : ", ") + std::string(known.name);
  throw_error(ErrorKind::unsupported, "{}: model_type \"{}\" is not supported; supported: {}", config.where(), type,
              names);
}

}  // namespace mlxlm::models
