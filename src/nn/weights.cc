#include "nn/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "nn/quantization.h"

namespace mlxlm::nn {
namespace {

using io::ModelFolder;
using io::shape_text;
using io::TensorView;

class Binder {
 public:
  Binder(std::shared_ptr<const ModelFolder> folder, const ModelSpec& spec)
      : folder_(*folder), spec_(spec), quantization_(read_quantization(folder_)) {
    out_.folder = std::move(folder);
  }

  Weights bind() {
    bind_layers();
    out_.embedding = matrix(spec_.embedding);
    out_.head = out_.embedding;
    if (!spec_.tied()) {
      out_.head = matrix(spec_.head);
    }
    out_.final_norm = norm(spec_.final_norm);
    refuse_leftovers();
    summarize();
    return std::move(out_);
  }

 private:
  void bind_layers() {
    out_.layers.reserve(spec_.layers.size());
    for (const LayerSpec& layer : spec_.layers) {
      LayerWeights w;
      w.attn_norm = norm(layer.attn_norm);
      w.attn_post_norm = norm(layer.attn_post_norm);
      w.mlp_norm = norm(layer.mlp_norm);
      w.mlp_post_norm = norm(layer.mlp_post_norm);
      w.q_norm = norm(layer.attention.q_norm);
      w.k_norm = norm(layer.attention.k_norm);
      w.q = linear(layer.attention.q);
      w.k = linear(layer.attention.k);
      w.v = linear(layer.attention.v);
      w.o = linear(layer.attention.o);
      w.gate = linear(layer.mlp.gate);
      w.up = linear(layer.mlp.up);
      w.down = linear(layer.mlp.down);
      out_.layers.push_back(std::move(w));
    }
  }

  const TensorView* find(const std::string& name) {
    const auto it = folder_.tensors.find(name);
    if (it == folder_.tensors.end()) return nullptr;
    used_.insert(name);
    return it->second;
  }

  const TensorView& require(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView* t = find(name);
    if (t == nullptr) {
      throw_error(
          ErrorKind::invalid_value,
          "{}: tensor '{}' {} is missing; the {} model in config.json needs it. Is a weight file absent, or does "
          "config.json belong to another model?",
          folder_.path, name, shape_text(shape), spec_.model_type);
    }
    if (t->shape != shape) {
      throw_invalid("{}: tensor '{}': expected shape {}, got {}; config.json and the weights do not belong together",
                    folder_.file_of(*t), name, shape_text(shape), shape_text(t->shape));
    }
    return *t;
  }

  const TensorView& require_float(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView& t = require(name, shape);
    if (!is_weight_float(t.dtype)) {
      throw_invalid("{}: tensor '{}': expected F32, F16 or BF16, got {}", folder_.file_of(t), name,
                    dtype_name(t.dtype));
    }
    return t;
  }

  // A float tensor of any of the three types as float32, by way of a one-row matrix.
  std::vector<float> floats(const std::string& name, int64_t n) {
    const TensorView& t = require_float(name, {n});
    std::vector<float> values(static_cast<size_t>(n));
    Matrix row;
    row.data = t.data;
    row.rows = 1;
    row.cols = n;
    row.dtype = t.dtype;
    select_kernels("scalar").dequantize_row(row, 0, values.data());
    out_.parameters += n;
    out_.bytes += static_cast<int64_t>(t.bytes);
    return values;
  }

  Norm norm(const NormSpec& spec) {
    Norm norm;
    if (!spec.present()) return norm;
    norm.weight = floats(spec.name + ".weight", spec.size);
    for (float& w : norm.weight) w += spec.weight_offset;
    norm.eps = spec.eps;
    out_.bytes_per_token += spec.size * 4;
    return norm;
  }

  Linear linear(const LinearSpec& spec) {
    Linear linear;
    linear.w = matrix(spec);
    if (spec.bias) linear.bias = floats(spec.name + ".bias", spec.out);
    return linear;
  }

  Matrix matrix(const LinearSpec& spec) {
    Matrix m;
    m.rows = spec.out;
    m.cols = spec.in;
    const bool has_scales = folder_.tensors.contains(spec.name + ".scales");
    if (const auto quantized = quantization_.of_module(spec.name, has_scales)) {
      bind_affine(spec, *quantized, m);
    } else {
      const TensorView& t = require_float(spec.name + ".weight", {spec.out, spec.in});
      m.data = t.data;
      m.dtype = t.dtype;
    }
    count(m);
    return m;
  }

  void bind_affine(const LinearSpec& spec, const QuantizedFormat& format, Matrix& m) {
    m.bits = format.bits;
    m.group_size = format.group_size;
    if (spec.in % m.group_size != 0) {
      throw_invalid("{}: '{}' has {} input features, not a multiple of the group size {} in config.json's quantization",
                    folder_.path, spec.name, spec.in, m.group_size);
    }
    const TensorView& codes = require(spec.name + ".weight", {spec.out, spec.in * m.bits / 32});
    if (codes.dtype != DType::u32) {
      throw_invalid("{}: tensor '{}.weight': expected U32 (packed {}-bit codes), got {}", folder_.file_of(codes),
                    spec.name, m.bits, dtype_name(codes.dtype));
    }
    const TensorView& scales = require_float(spec.name + ".scales", {spec.out, m.groups()});
    const TensorView& biases = require_float(spec.name + ".biases", {spec.out, m.groups()});
    if (scales.dtype != biases.dtype) {
      throw_invalid("{}: '{}': scales are {} but biases are {}; expected one type", folder_.file_of(scales), spec.name,
                    dtype_name(scales.dtype), dtype_name(biases.dtype));
    }
    m.data = codes.data;
    m.scales = scales.data;
    m.biases = biases.data;
    m.dtype = scales.dtype;
  }

  void count(const Matrix& m) {
    const int64_t n = m.rows * m.cols;
    out_.parameters += n;
    out_.bytes += m.bytes();
    formats_[{m.bits, m.group_size, m.dtype}] += n;
    types_[m.dtype] += n;
  }

  bool ignored(const std::string& name) const {
    const auto ends = [&](const std::string& s) { return name.ends_with(s); };
    const auto starts = [&](const std::string& s) { return name.starts_with(s); };
    return std::any_of(spec_.ignored_suffixes.begin(), spec_.ignored_suffixes.end(), ends) ||
           std::any_of(spec_.ignored_prefixes.begin(), spec_.ignored_prefixes.end(), starts);
  }

  void refuse_leftovers() const {
    std::set<std::string> extra;
    for (const auto& [name, tensor] : folder_.tensors) {
      if (!used_.contains(name) && !ignored(name)) extra.insert(name);
    }
    if (extra.empty()) return;
    const std::string& first = *extra.begin();
    throw_invalid(
        "{}: tensor '{}' {} is not part of the {} model that config.json describes{}; config.json and the "
        "weights do not belong together",
        folder_.file_of(*folder_.tensors.at(first)), first, shape_text(folder_.tensors.at(first)->shape),
        spec_.model_type, extra.size() > 1 ? format_text(" (nor are {} more)", extra.size() - 1) : "");
  }

  void summarize() {
    for (const LayerWeights& layer : out_.layers) {
      for (const Linear* l : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
        out_.bytes_per_token += l->w.bytes() + static_cast<int64_t>(l->bias.size()) * 4;
        out_.macs_per_token += l->w.rows * l->w.cols;
      }
    }
    out_.bytes_per_token += out_.head.bytes();
    out_.macs_per_token += out_.head.rows * out_.head.cols;

    std::vector<std::pair<int64_t, std::string>> names;
    for (const auto& [format, n] : formats_) {
      const auto& [bits, group, dtype] = format;
      const char* dense = dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
      names.emplace_back(-n, bits == 0 ? std::string(dense) : format_text("{}-bit group {}", bits, group));
    }
    std::sort(names.begin(), names.end());
    for (const auto& [n, name] : names) {
      if (out_.quantization.find(name) != std::string::npos) continue;
      out_.quantization += (out_.quantization.empty() ? "" : ", ") + name;
    }
    const auto most = std::max_element(types_.begin(), types_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != types_.end()) out_.float_type = most->first;
  }

  const ModelFolder& folder_;
  const ModelSpec& spec_;
  Quantization quantization_;
  Weights out_;
  std::set<std::string> used_;
  std::map<std::tuple<int, int, DType>, int64_t> formats_;
  std::map<DType, int64_t> types_;
};

}  // namespace

Weights bind_weights(std::shared_ptr<const ModelFolder> folder, const ModelSpec& spec) {
  return Binder(std::move(folder), spec).bind();
}

}  // namespace mlxlm::nn
