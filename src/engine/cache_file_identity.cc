#include "engine/cache_file_identity.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace mlxlm::engine {
namespace {

constexpr std::string_view kPrefix = "mlxlm_";
constexpr std::string_view kVersion = "1";

// FNV-1a, 64 bits: a fingerprint against mistakes, not against forgery.
class Hash {
 public:
  void bytes(const void* data, size_t n) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < n; ++i) state_ = (state_ ^ p[i]) * 0x100000001b3;
  }
  template <typename Number>
  void number(Number value) {
    bytes(&value, sizeof value);
  }
  void text(const std::string& value) {
    number(value.size());
    bytes(value.data(), value.size());
  }
  void floats(const std::vector<float>& values) {
    number(values.size());
    bytes(values.data(), values.size() * sizeof(float));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

// A few hundred bytes of a matrix tell models apart, and touch few pages of a file that may be large.
void hash_matrix(Hash& hash, const Matrix& matrix) {
  constexpr int64_t kSample = 64;
  for (const int64_t n : {matrix.rows, matrix.cols, int64_t{matrix.bits}, int64_t{matrix.group_size}}) hash.number(n);
  hash.number(matrix.dtype);
  const int64_t size = matrix.rows * matrix.row_bytes();
  const int64_t n = std::min(kSample, size);
  for (const int64_t at : {int64_t{0}, (size - n) / 2, size - n}) hash.bytes(matrix.data + at, static_cast<size_t>(n));
  const int64_t scales = matrix.rows * matrix.scale_row_bytes();
  if (scales > 0) hash.bytes(matrix.scales, static_cast<size_t>(std::min(kSample, scales)));
}

void hash_norm(Hash& hash, const nn::Norm& norm) {
  hash.floats(norm.weight);
  hash.number(norm.eps);
}

void hash_attention(Hash& hash, const nn::AttentionSpec& a) {
  for (const int64_t n : {a.n_heads, a.n_kv_heads, a.head_dim, a.window}) hash.number(n);
  hash.number(a.scale);
  hash.number(a.softcap);
  hash.floats(a.rope.inv_freq);
  hash.number(a.rope.magnitude);
  hash.number(a.rope.interleaved);
  hash.number(a.rope.dynamic.base);
  hash.number(a.rope.dynamic.factor);
  hash.number(a.rope.dynamic.max_position);
}

int64_t integer(const std::string& path, std::string_view name, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw_invalid("{}: metadata entry '{}': expected an integer, got '{}'", path, name, text.substr(0, 40));
  }
  return value;
}

// The words between single spaces.
template <typename Action>
void for_each_word(std::string_view text, const Action& action) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    action(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
}

std::string options_text(const PromptCacheOptions& o) {
  return format_text("{} {} {} {} {}", o.max_kv_size, o.keep, o.kv_bits, o.kv_group_size, o.quantized_kv_start);
}

PromptCacheOptions parse_options(const std::string& path, const std::string& name, const std::string& text) {
  std::vector<int64_t> n;
  for_each_word(text, [&](std::string_view word) { n.push_back(integer(path, name, word)); });
  const auto fits = [](int64_t value) { return value >= 0 && value <= 128; };
  if (n.size() != 5 || !fits(n[2]) || !fits(n[3])) {
    throw_invalid(
        "{}: metadata entry '{}': expected max_kv_size, keep, kv_bits, kv_group_size and quantized_kv_start, got '{}'",
        path, name, text.substr(0, 100));
  }
  return {n[0], n[1], static_cast<int>(n[2]), static_cast<int>(n[3]), n[4]};
}

}  // namespace

std::string model_fingerprint(const nn::Executor& executor) {
  const nn::ModelSpec& spec = executor.spec();
  const nn::Weights& weights = executor.weights();
  Hash hash;
  hash.text(spec.model_type);
  hash.number(spec.vocab_size);
  hash.number(spec.hidden_size);
  hash.number(spec.embedding_scale);
  hash_matrix(hash, weights.embedding);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    hash_attention(hash, spec.layers[i].attention);
    hash.number(spec.layers[i].mlp.activation);
    const nn::LayerWeights& layer = weights.layers[i];
    for (const nn::Norm* norm : {&layer.attn_norm, &layer.attn_post_norm, &layer.mlp_norm, &layer.mlp_post_norm,
                                 &layer.q_norm, &layer.k_norm}) {
      hash_norm(hash, *norm);
    }
    for (const nn::Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      hash_matrix(hash, linear->w);
      hash.floats(linear->bias);
    }
  }
  return format_text("{:016x}", hash.value());
}

void add_identity(const CacheIdentity& identity, std::map<std::string, std::string>& metadata) {
  metadata.insert_or_assign("mlxlm_version", std::string(kVersion));
  metadata["mlxlm_model"] = identity.model;
  metadata["mlxlm_precision"] = identity.precision;
  metadata["mlxlm_options"] = options_text(identity.options);
  metadata["mlxlm_start"] = format_text("{}", identity.start);
  metadata["mlxlm_tokens"] = join(identity.tokens, " ");
}

bool take_identity(const std::string& path, std::map<std::string, std::string>& metadata, CacheIdentity& identity) {
  const auto version = metadata.find("mlxlm_version");
  if (version == metadata.end()) return false;
  if (version->second != kVersion) {
    throw_error(ErrorKind::unsupported, "{}: expected a cache file of version {}, got version '{}'; make it again",
                path, kVersion, version->second.substr(0, 40));
  }
  metadata.erase(version);
  const auto take = [&](const std::string& name) {
    auto entry = metadata.extract(name);
    if (entry.empty()) throw_invalid("{}: metadata entry '{}' is missing", path, name);
    return std::move(entry.mapped());
  };
  identity.model = take("mlxlm_model");
  identity.precision = take("mlxlm_precision");
  identity.options = parse_options(path, "mlxlm_options", take("mlxlm_options"));
  identity.start = integer(path, "mlxlm_start", take("mlxlm_start"));
  identity.tokens.clear();
  const std::string tokens = take("mlxlm_tokens");
  for_each_word(tokens, [&](std::string_view word) {
    const int64_t id = integer(path, "mlxlm_tokens", word);
    if (id < 0 || id > 0x7fffffff) throw_invalid("{}: metadata entry 'mlxlm_tokens': {} is no token id", path, id);
    identity.tokens.push_back(static_cast<int32_t>(id));
  });
  for (const auto& [name, value] : metadata) {
    if (name.starts_with(kPrefix)) throw_invalid("{}: metadata entry '{}' is not known", path, name);
  }
  return true;
}

void check_user_metadata(const std::map<std::string, std::string>& metadata) {
  for (const auto& [name, value] : metadata) {
    if (name.starts_with(kPrefix)) {
      throw_invalid("metadata: names that start with '{}' are the library's own; rename '{}'", kPrefix, name);
    }
  }
}

}  // namespace mlxlm::engine
