#include "support/random_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/philox.h"
#include "models/registry.h"

namespace mlxlm::test {
namespace {

namespace fs = std::filesystem;

class Writer {
 public:
  explicit Writer(const RandomModelOptions& options) : o_(options) {}

  void linear(const nn::LinearSpec& spec) {
    if (o_.bits == 0) {
      floats(spec.name + ".weight", {spec.out, spec.in}, 1.5f / std::sqrt(static_cast<float>(spec.in)), 0);
    } else {
      affine(spec);
    }
    if (spec.bias) floats(spec.name + ".bias", {spec.out}, 0.1f, 0);
  }

  void norm(const nn::NormSpec& spec) {
    if (spec.present()) floats(spec.name + ".weight", {spec.size}, 0.1f, 1 - spec.weight_offset);
  }

  void finish(io::Json config, const fs::path& folder) {
    if (o_.bits != 0) {
      quantization_["bits"] = o_.bits;
      quantization_["group_size"] = o_.group_size;
      config["quantization"] = quantization_;
    }
    io::write_text_file((folder / "config.json").string(), config.dump());
    std::vector<io::TensorView> views;
    for (auto& [view, bytes] : tensors_) {
      view.data = bytes.data();
      view.bytes = bytes.size();
      views.push_back(view);
    }
    io::write_safetensors((folder / "model.safetensors").string(), views, {{"format", "mlx"}});
  }

 private:
  double uniform() { return uniform_draw(o_.seed, counter_++, DrawPurpose::user, 0) * 2 - 1; }

  std::vector<std::byte>& add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    tensors_.emplace_back(io::TensorView{name, dtype, std::move(shape), nullptr, 0},
                          std::vector<std::byte>(static_cast<size_t>(n) * dtype_size(dtype)));
    return tensors_.back().second;
  }

  // Values that bfloat16 holds, so that every float type stores them exactly or close by.
  void put(std::vector<std::byte>& bytes, size_t i, float value) const {
    const uint32_t bits = std::bit_cast<uint32_t>(value) & 0xffff0000u;
    if (o_.dtype == DType::f32) {
      std::memcpy(bytes.data() + 4 * i, &bits, 4);
    } else {
      const auto half = static_cast<uint16_t>(bits >> 16);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
  }

  void floats(const std::string& name, const std::vector<int64_t>& shape, float scale, float offset) {
    auto& bytes = add(name, o_.dtype, shape);
    for (size_t i = 0; i < bytes.size() / dtype_size(o_.dtype); ++i) {
      put(bytes, i, static_cast<float>(uniform()) * scale + offset);
    }
  }

  void affine(const nn::LinearSpec& spec) {
    const bool wide = o_.mixed && (spec.name.ends_with("v_proj") || spec.name.ends_with("down_proj"));
    const int bits = wide ? 8 : o_.bits;
    if (wide) quantization_[spec.name] = {{"bits", 8}, {"group_size", o_.group_size}};
    auto& codes = add(spec.name + ".weight", DType::u32, {spec.out, spec.in * bits / 32});
    for (auto& byte : codes) byte = static_cast<std::byte>(static_cast<int>((uniform() + 1) * 127.99));
    const float range = 3.0f / std::sqrt(static_cast<float>(spec.in));
    const float scale = range / static_cast<float>((1 << bits) - 1);
    const std::vector<int64_t> groups = {spec.out, spec.in / o_.group_size};
    floats(spec.name + ".scales", groups, scale * 0.3f, scale);
    floats(spec.name + ".biases", groups, range * 0.1f, -range / 2);
  }

  const RandomModelOptions& o_;
  std::vector<std::pair<io::TensorView, std::vector<std::byte>>> tensors_;
  io::Json quantization_ = io::Json::object();
  int64_t counter_ = 0;
};

}  // namespace

namespace {

// GPT-2's printable stand-in for every byte, as UTF-8.
std::string byte_character(int byte) {
  static const std::vector<int> table = [] {
    std::vector<int> characters(256);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      characters[static_cast<size_t>(b)] = printable ? b : next++;
    }
    return characters;
  }();
  const int c = table[static_cast<size_t>(byte)];
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
}

void write_byte_tokenizer(const fs::path& folder) {
  io::Json vocab = io::Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_character(byte)] = byte;
  const io::Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const io::Json tokenizer = {{"version", "1.0"},
                              {"added_tokens", io::Json::array()},
                              {"pre_tokenizer", byte_level},
                              {"decoder", byte_level},
                              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", io::Json::array()}}}};
  io::write_text_file((folder / "tokenizer.json").string(), tokenizer.dump());
  io::write_text_file((folder / "tokenizer_config.json").string(),
                      R"({"chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"})");
}

std::string write_folder(const RandomModelOptions& options) {
  io::ModelFolder empty;
  empty.config = options.config;
  const nn::ModelSpec spec = models::build_spec(empty);
  Writer writer(options);
  writer.linear(spec.embedding);
  for (const nn::LayerSpec& layer : spec.layers) {
    for (const auto* norm : {&layer.attn_norm, &layer.attn_post_norm, &layer.mlp_norm, &layer.mlp_post_norm,
                             &layer.attention.q_norm, &layer.attention.k_norm}) {
      writer.norm(*norm);
    }
    for (const auto* linear : {&layer.attention.q, &layer.attention.k, &layer.attention.v, &layer.attention.o,
                               &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down}) {
      writer.linear(*linear);
    }
  }
  writer.norm(spec.final_norm);
  if (!spec.tied()) writer.linear(spec.head);

  std::string pattern = (fs::temp_directory_path() / "mlxlm-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + pattern);
  writer.finish(options.config, pattern);
  return pattern;
}

}  // namespace

std::shared_ptr<const io::ModelFolder> make_random_model(const RandomModelOptions& options) {
  const std::string path = write_folder(options);
  auto folder = io::open_model_folder(path);
  fs::remove_all(path);  // the mapped file lives on
  return folder;
}

std::string write_random_model(const RandomModelOptions& options) {
  const std::string path = write_folder(options);
  write_byte_tokenizer(path);
  return path;
}

io::Json tiny_config(const std::string& model_type) {
  return {{"model_type", model_type},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"intermediate_size", 128},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"vocab_size", 96},
          {"rms_norm_eps", 1e-3},
          {"rope_theta", 10000.0},
          {"max_position_embeddings", 4096},
          {"tie_word_embeddings", true}};
}

}  // namespace mlxlm::test
