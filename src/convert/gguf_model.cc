#include "convert/gguf_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "io/safetensors.h"

namespace mlxlm::conversion {
namespace {

using io::GgufFile;
using io::GgufTensor;
using io::GgufType;
using io::Json;

enum class Dim { none, hidden, ffn, q, kv, head, vocab };
enum class When { always, attention_bias, mlp_bias };
enum class Heads { none, q, kv };

/// A tensor of one layer: "blk.N.<gguf>" becomes "model.layers.N.<name>".
struct Rule {
  const char* gguf;
  const char* name;
  Dim rows;  ///< none: a vector of `cols`
  Dim cols;
  Heads rope = Heads::none;  ///< rows that rotary embeddings mix, in this many heads
  When when = When::always;
};

constexpr std::array<Rule, 8> kCommon = {{
    {"attn_norm.weight", "input_layernorm.weight", Dim::none, Dim::hidden},
    {"attn_q.weight", "self_attn.q_proj.weight", Dim::q, Dim::hidden, Heads::q},
    {"attn_k.weight", "self_attn.k_proj.weight", Dim::kv, Dim::hidden, Heads::kv},
    {"attn_v.weight", "self_attn.v_proj.weight", Dim::kv, Dim::hidden},
    {"attn_output.weight", "self_attn.o_proj.weight", Dim::hidden, Dim::q},
    {"ffn_gate.weight", "mlp.gate_proj.weight", Dim::ffn, Dim::hidden},
    {"ffn_up.weight", "mlp.up_proj.weight", Dim::ffn, Dim::hidden},
    {"ffn_down.weight", "mlp.down_proj.weight", Dim::hidden, Dim::ffn},
}};
constexpr std::array<Rule, 1> kPreNorm = {{
    {"ffn_norm.weight", "post_attention_layernorm.weight", Dim::none, Dim::hidden},
}};
constexpr std::array<Rule, 7> kLlamaBiases = {{
    {"attn_q.bias", "self_attn.q_proj.bias", Dim::none, Dim::q, Heads::q, When::attention_bias},
    {"attn_k.bias", "self_attn.k_proj.bias", Dim::none, Dim::kv, Heads::kv, When::attention_bias},
    {"attn_v.bias", "self_attn.v_proj.bias", Dim::none, Dim::kv, Heads::none, When::attention_bias},
    {"attn_output.bias", "self_attn.o_proj.bias", Dim::none, Dim::hidden, Heads::none, When::attention_bias},
    {"ffn_gate.bias", "mlp.gate_proj.bias", Dim::none, Dim::ffn, Heads::none, When::mlp_bias},
    {"ffn_up.bias", "mlp.up_proj.bias", Dim::none, Dim::ffn, Heads::none, When::mlp_bias},
    {"ffn_down.bias", "mlp.down_proj.bias", Dim::none, Dim::hidden, Heads::none, When::mlp_bias},
}};
constexpr std::array<Rule, 3> kQwen2Biases = {{
    {"attn_q.bias", "self_attn.q_proj.bias", Dim::none, Dim::q},
    {"attn_k.bias", "self_attn.k_proj.bias", Dim::none, Dim::kv},
    {"attn_v.bias", "self_attn.v_proj.bias", Dim::none, Dim::kv},
}};
constexpr std::array<Rule, 2> kQkNorms = {{
    {"attn_q_norm.weight", "self_attn.q_norm.weight", Dim::none, Dim::head},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", Dim::none, Dim::head},
}};
constexpr std::array<Rule, 3> kGemmaNorms = {{
    {"post_attention_norm.weight", "post_attention_layernorm.weight", Dim::none, Dim::hidden},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", Dim::none, Dim::hidden},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", Dim::none, Dim::hidden},
}};

struct Architecture {
  const char* name;
  const char* model_type;
  const char* class_name;
  bool interleaved_rope;  ///< the rows of q and k were reordered for interleaved rotation
  bool norm_plus_one;
  bool head_dim_is_key;  ///< config.json has head_dim; else hidden_size / heads is the only choice
  std::array<std::span<const Rule>, 3> rules;
};

constexpr std::array<Architecture, 4> kArchitectures = {{
    {"llama", "llama", "LlamaForCausalLM", true, false, true, {kCommon, kPreNorm, kLlamaBiases}},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", false, false, false, {kCommon, kPreNorm, kQwen2Biases}},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", false, false, true, {kCommon, kPreNorm, kQkNorms}},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", false, true, true, {kCommon, kGemmaNorms, kQkNorms}},
}};

// Keys below "<architecture>." whose meaning is known. Another one may change the computation, so it is an error.
constexpr std::array<const char*, 24> kKnownKeys = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "expert_count",
    "expert_used_count",
};

struct Dims {
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;

  int64_t of(Dim dim) const {
    switch (dim) {
      case Dim::none:
        return 1;
      case Dim::hidden:
        return hidden;
      case Dim::ffn:
        return ffn;
      case Dim::q:
        return heads * head_dim;
      case Dim::kv:
        return kv_heads * head_dim;
      case Dim::head:
        return head_dim;
      case Dim::vocab:
        return vocab;
    }
    return 0;
  }
};

const Architecture& find_architecture(const GgufFile& gguf) {
  const auto name = gguf.string("general.architecture");
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return architecture;
    known += format_text("{}{}", known.empty() ? "" : ", ", architecture.name);
  }
  throw_error(ErrorKind::unsupported, "{}: architecture '{}' cannot be converted; supported: {}", gguf.path(), name,
              known);
}

/// Reads one file's plan.
class GgufPlanner {
 public:
  explicit GgufPlanner(const GgufFile& gguf) : gguf_(gguf), architecture_(find_architecture(gguf)) {
    for (const GgufTensor& tensor : gguf.tensors()) by_name_[tensor.name] = &tensor;
  }

  ModelPlan plan() {
    check_keys();
    read_dims();
    ModelPlan plan;
    plan.architecture = architecture_.name;
    plan.model_type = architecture_.model_type;
    plan.config = config();
    plan_weights(plan.weights);
    return plan;
  }

 private:
  std::string key(std::string_view name) const { return format_text("{}.{}", architecture_.name, name); }
  bool is_gemma() const { return architecture_.norm_plus_one; }

  const GgufTensor* find(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }

  void check_keys() const {
    const std::string prefix = key("");
    for (const auto& [name, value] : gguf_.metadata()) {
      if (!name.starts_with(prefix)) continue;
      const auto rest = std::string_view(name).substr(prefix.size());
      if (std::find(kKnownKeys.begin(), kKnownKeys.end(), rest) == kKnownKeys.end()) {
        throw_error(ErrorKind::unsupported,
                    "{}: key '{}' is not understood and may change what the model computes, so it is not converted",
                    gguf_.path(), name);
      }
    }
    if (gguf_.find_integer(key("expert_count")).value_or(0) != 0) {
      throw_error(ErrorKind::unsupported, "{}: key '{}': mixtures of experts cannot be converted", gguf_.path(),
                  key("expert_count"));
    }
    if (!is_gemma() && gguf_.find_integer(key("attention.sliding_window")).value_or(0) != 0) {
      throw_error(ErrorKind::unsupported, "{}: key '{}': sliding windows of {} cannot be converted", gguf_.path(),
                  key("attention.sliding_window"), architecture_.name);
    }
  }

  int64_t positive(std::string_view name) const {
    const int64_t value = gguf_.integer(key(name));
    // Products of two dimensions must not overflow; no model comes near.
    if (value < 1 || value > (int64_t{1} << 30)) {
      throw_invalid("{}: key '{}': expected 1 to 2^30, got {}", gguf_.path(), key(name), value);
    }
    return value;
  }

  void read_dims() {
    dims_.layers = positive("block_count");
    dims_.hidden = positive("embedding_length");
    dims_.ffn = positive("feed_forward_length");
    dims_.heads = positive("attention.head_count");
    dims_.kv_heads = gguf_.has(key("attention.head_count_kv")) ? positive("attention.head_count_kv") : dims_.heads;
    const bool has_head_dim = gguf_.has(key("attention.key_length"));
    if (!has_head_dim && dims_.hidden % dims_.heads != 0) {
      throw_invalid("{}: {} heads do not divide the embedding length {}", gguf_.path(), dims_.heads, dims_.hidden);
    }
    dims_.head_dim = has_head_dim ? positive("attention.key_length") : dims_.hidden / dims_.heads;
    require_head_dim("attention.value_length");
    require_head_dim("rope.dimension_count");
    if (dims_.head_dim % 2 != 0 || dims_.heads % dims_.kv_heads != 0) {
      throw_invalid("{}: {} heads of {} with {} key-value heads: expected an even size and a divisor", gguf_.path(),
                    dims_.heads, dims_.head_dim, dims_.kv_heads);
    }
    if (!architecture_.head_dim_is_key && dims_.head_dim * dims_.heads != dims_.hidden) {
      throw_error(ErrorKind::unsupported, "{}: {} with a head size of {} and {} heads of {} in all cannot be converted",
                  gguf_.path(), architecture_.name, dims_.head_dim, dims_.heads, dims_.hidden);
    }
    const GgufTensor* embedding = find("token_embd.weight");
    if (embedding == nullptr) throw_invalid("{}: tensor 'token_embd.weight' is missing", gguf_.path());
    dims_.vocab = embedding->shape[0];
  }

  void require_head_dim(std::string_view name) const {
    const int64_t value = gguf_.find_integer(key(name)).value_or(dims_.head_dim);
    if (value != dims_.head_dim) {
      throw_error(ErrorKind::unsupported, "{}: key '{}': expected the head size {}, got {}", gguf_.path(), key(name),
                  dims_.head_dim, value);
    }
  }

  std::vector<float> rope_factors() const {
    const GgufTensor* tensor = find("rope_freqs.weight");
    if (tensor == nullptr || !architecture_.interleaved_rope) return {};
    if (tensor->type != GgufType::f32 || tensor->shape != std::vector<int64_t>{dims_.head_dim / 2}) {
      throw_invalid("{}: tensor 'rope_freqs.weight': expected F32 of shape [{}], got {} of {}", gguf_.path(),
                    dims_.head_dim / 2, io::gguf_type_name(tensor->type), io::shape_text(tensor->shape));
    }
    std::vector<float> factors(static_cast<size_t>(dims_.head_dim / 2));
    std::memcpy(factors.data(), tensor->data, tensor->bytes);
    return factors;
  }

  Json config() const {
    const double theta = gguf_.find_number(key("rope.freq_base")).value_or(is_gemma() ? 1e6 : 1e4);
    Json config = {
        {"architectures", Json::array({architecture_.class_name})},
        {"attention_dropout", 0.0},
        {"hidden_size", dims_.hidden},
        {"intermediate_size", dims_.ffn},
        {"max_position_embeddings", positive("context_length")},
        {"model_type", architecture_.model_type},
        {"num_attention_heads", dims_.heads},
        {"num_hidden_layers", dims_.layers},
        {"num_key_value_heads", dims_.kv_heads},
        {"rms_norm_eps", gguf_.number(key("attention.layer_norm_rms_epsilon"))},
        {"rope_scaling", rope_scaling(gguf_, architecture_.name, rope_factors(), theta)},
        {"rope_theta", theta},
        {"tie_word_embeddings", find("output.weight") == nullptr},
        {"vocab_size", dims_.vocab},
    };
    config[is_gemma() ? "hidden_activation" : "hidden_act"] = is_gemma() ? "gelu_pytorch_tanh" : "silu";
    if (architecture_.head_dim_is_key) config["head_dim"] = dims_.head_dim;
    if (architecture_.interleaved_rope) {
      config["attention_bias"] = has_bias("attn_q.bias");
      config["mlp_bias"] = has_bias("ffn_gate.bias");
    }
    if (is_gemma()) {
      config["query_pre_attn_scalar"] = query_scalar();
      config["rope_local_base_freq"] = gguf_.find_number(key("rope.freq_base_swa")).value_or(1e4);
      config["sliding_window"] = positive("attention.sliding_window");
      config["sliding_window_pattern"] = gguf_.find_integer(key("attention.sliding_window_pattern")).value_or(6);
    } else if (!architecture_.interleaved_rope) {
      config["use_sliding_window"] = false;
    }
    return config;
  }

  // GGUF has no key for it. The 27B model, the one with 62 layers, scales by hidden_size / heads, the others by
  // head_dim.
  int64_t query_scalar() const { return dims_.layers == 62 ? dims_.hidden / dims_.heads : dims_.head_dim; }

  bool has_bias(const char* name) const { return find(format_text("blk.0.{}", name)) != nullptr; }

  bool wanted(const Rule& rule) const {
    if (rule.when == When::attention_bias) return has_bias("attn_q.bias");
    if (rule.when == When::mlp_bias) return has_bias("ffn_gate.bias");
    return true;
  }

  void plan_weights(std::vector<WeightPlan>& weights) {
    std::map<const GgufTensor*, WeightPlan> plans;
    const auto add = [&](const std::string& source, const std::string& name, Dim rows, Dim cols, Heads rope) {
      const GgufTensor* tensor = find(source);
      if (tensor == nullptr) throw_invalid("{}: tensor '{}' is missing", gguf_.path(), source);
      check(*tensor, rows, cols);
      WeightPlan plan{tensor, name, 0, is_gemma() && name.ends_with("norm.weight")};
      if (architecture_.interleaved_rope && rope != Heads::none) {
        plan.interleaved_heads = rope == Heads::q ? dims_.heads : dims_.kv_heads;
      }
      plans.emplace(tensor, plan);
    };
    add("token_embd.weight", "model.embed_tokens.weight", Dim::vocab, Dim::hidden, Heads::none);
    add("output_norm.weight", "model.norm.weight", Dim::none, Dim::hidden, Heads::none);
    if (find("output.weight") != nullptr) {
      add("output.weight", "lm_head.weight", Dim::vocab, Dim::hidden, Heads::none);
    }
    // A file with few tensors must not keep a lying layer count busy: the first missing tensor ends the loop.
    for (int64_t layer = 0; layer < dims_.layers; ++layer) {
      for (const auto& group : architecture_.rules) {
        for (const Rule& rule : group) {
          if (!wanted(rule)) continue;
          add(format_text("blk.{}.{}", layer, rule.gguf), format_text("model.layers.{}.{}", layer, rule.name),
              rule.rows, rule.cols, rule.rope);
        }
      }
    }
    for (const GgufTensor& tensor : gguf_.tensors()) {
      const auto it = plans.find(&tensor);
      if (it != plans.end()) {
        weights.push_back(it->second);
      } else if (tensor.name != "rope_freqs.weight" || !architecture_.interleaved_rope) {
        throw_error(ErrorKind::unsupported, "{}: tensor '{}' is not part of architecture '{}' as it is understood here",
                    gguf_.path(), tensor.name, architecture_.name);
      }
    }
  }

  void check(const GgufTensor& tensor, Dim rows, Dim cols) const {
    const auto shape =
        rows == Dim::none ? std::vector<int64_t>{dims_.of(cols)} : std::vector<int64_t>{dims_.of(rows), dims_.of(cols)};
    if (tensor.shape != shape) {
      throw_invalid("{}: tensor '{}': expected shape {}, got {}", gguf_.path(), tensor.name, io::shape_text(shape),
                    io::shape_text(tensor.shape));
    }
    if (tensor.data == nullptr) {
      throw_error(ErrorKind::unsupported,
                  "{}: tensor '{}' is {}; supported: F32, F16, BF16, Q4_0, Q4_1, Q8_0. Use a file in one of these",
                  gguf_.path(), tensor.name, io::gguf_type_name(tensor.type));
    }
    if (rows == Dim::none && io::gguf_block(tensor.type)->elements != 1) {
      throw_error(ErrorKind::unsupported, "{}: tensor '{}': a quantised vector ({}) cannot be converted", gguf_.path(),
                  tensor.name, io::gguf_type_name(tensor.type));
    }
  }

  const GgufFile& gguf_;
  const Architecture& architecture_;
  std::map<std::string, const GgufTensor*> by_name_;
  Dims dims_;
};

}  // namespace

ModelPlan plan_model(const GgufFile& gguf) { return GgufPlanner(gguf).plan(); }

}  // namespace mlxlm::conversion
