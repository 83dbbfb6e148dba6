#include "convert/hf_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "convert/recipes.h"
#include "nn/quantization.h"

namespace mlxlm::conversion {
namespace {

using io::Json;
using io::TensorView;
using nn::LinearSpec;
using nn::NormSpec;

constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kGroupSizes = {32, 64, 128};
constexpr std::array<std::pair<const char*, DType>, 3> kTypes = {
    {{"float16", DType::f16}, {"bfloat16", DType::bf16}, {"float32", DType::f32}}};

void check_format(QuantFormat format, const std::string& where) {
  if (std::find(kBits.begin(), kBits.end(), format.bits) == kBits.end()) {
    throw_invalid("{}: bits: expected one of {}, got {}", where, join(kBits, ", "), format.bits);
  }
  if (std::find(kGroupSizes.begin(), kGroupSizes.end(), format.group_size) == kGroupSizes.end()) {
    throw_invalid("{}: group size: expected one of {}, got {}", where, join(kGroupSizes, ", "), format.group_size);
  }
}

QuantFormat overall_format(const ConvertOptions& options) {
  QuantFormat format;
  if (options.q_bits != 0) format.bits = options.q_bits;
  if (options.q_group_size != 0) format.group_size = options.q_group_size;
  return format;
}

std::optional<DType> type_named(const std::string& name) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return std::nullopt;
}

/// A config's value under `key` if it is not null.
const Json* find_value(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

/// The type all floats are cast to; none: each keeps its own. As in the reference, config.json's torch_dtype counts but
/// a dtype beside it does not.
std::optional<DType> target_type(const Json& config, const ConvertOptions& options) {
  if (!options.dtype.empty()) return type_named(options.dtype);
  const Json* name = find_value(config, "torch_dtype");
  if (name == nullptr) {
    const Json* text = find_value(config, "text_config");
    if (text != nullptr && text->is_object()) name = find_value(*text, "dtype");
  }
  return name != nullptr && name->is_string() ? type_named(name->get<std::string>()) : std::nullopt;
}

/// The `quantization` section the folder has, or null.
Json existing_section(const Json& config) {
  for (const char* key : {"quantization", "quantization_config"}) {
    if (const Json* section = find_value(config, key)) return *section;
  }
  return nullptr;
}

Json format_json(QuantFormat format) {
  return {{"group_size", format.group_size}, {"bits", format.bits}, {"mode", "affine"}};
}

class HfPlanner {
 public:
  HfPlanner(const io::ModelFolder& folder, const nn::ModelSpec& spec, const ConvertOptions& options)
      : folder_(folder),
        spec_(spec),
        options_(options),
        overall_(overall_format(options)),
        target_(target_type(folder.config, options)),
        source_quantization_(nn::read_quantization(folder)),
        section_(existing_section(folder.config)),
        partly_quantized_(!section_.is_null()),
        choose_(options.quant_predicate.empty() ? options.choose
                                                : make_recipe(options.quant_predicate, spec, overall_.group_size)) {
    if (options.quantize && !partly_quantized_) section_ = format_json(overall_);
    if (options.dequantize) section_ = nullptr;
  }

  // The order is that of mlx-lm's modules: it decides which file a tensor goes to.
  HfPlan plan() {
    linear(spec_.embedding);
    for (const nn::LayerSpec& layer : spec_.layers) plan_layer(layer);
    norm(spec_.final_norm);
    if (!spec_.tied()) linear(spec_.head);
    check_complete();
    if (options_.quantize && newly_quantized_ == 0) refuse_nothing_to_quantize();
    plan_.quantization = std::move(section_);
    plan_.quantization_text = formats_text();
    return std::move(plan_);
  }

 private:
  void plan_layer(const nn::LayerSpec& layer) {
    const nn::AttentionSpec& attention = layer.attention;
    for (const LinearSpec* spec : {&attention.q, &attention.k, &attention.v, &attention.o}) linear(*spec);
    norm(attention.q_norm);
    norm(attention.k_norm);
    for (const LinearSpec* spec : {&layer.mlp.gate, &layer.mlp.down, &layer.mlp.up}) linear(*spec);
    for (const NormSpec* spec : {&layer.attn_norm, &layer.attn_post_norm, &layer.mlp_norm, &layer.mlp_post_norm}) {
      norm(*spec);
    }
  }

  const TensorView& view(const std::string& name) const {
    const auto it = folder_.tensors.find(name);
    if (it == folder_.tensors.end()) {
      throw_error(ErrorKind::internal, "{}: tensor '{}' is missing, and was not checked", folder_.path, name);
    }
    return *it->second;
  }

  DType type_of(const TensorView& tensor) const {
    return target_ && is_weight_float(tensor.dtype) ? *target_ : tensor.dtype;
  }

  PlannedTensor& add(const std::string& name, DType dtype, std::vector<int64_t> shape, const TensorView& source) {
    PlannedTensor& tensor = plan_.tensors.emplace_back();
    tensor.info = {name, dtype, std::move(shape)};
    tensor.source = &source;
    used_.insert(source.name);
    return tensor;
  }

  void cast(const std::string& name) {
    const TensorView& source = view(name);
    add(name, type_of(source), source.shape, source);
  }

  void norm(const NormSpec& spec) {
    if (!spec.present()) return;
    cast(spec.name + ".weight");
    ++plan_.weights;
  }

  void linear(const LinearSpec& spec) {
    const bool has_scales = folder_.tensors.contains(spec.name + ".scales");
    if (const auto format = source_quantization_.of_module(spec.name, has_scales)) {
      quantized_linear(spec, {format->bits, format->group_size});
    } else if (const auto chosen = format_for(spec)) {
      quantize(spec, *chosen);
    } else {
      cast(spec.name + ".weight");
    }
    ++plan_.weights;
    if (!spec.bias) return;
    cast(spec.name + ".bias");
    ++plan_.weights;
  }

  void quantized_linear(const LinearSpec& spec, QuantFormat format) {
    if (!options_.dequantize) {
      for (const char* part : {".weight", ".scales", ".biases"}) cast(spec.name + part);
      formats_.insert({format.bits, format.group_size});
      return;
    }
    const TensorView& scales = view(spec.name + ".scales");
    PlannedTensor& weight =
        add(spec.name + ".weight", type_of(scales), {spec.out, spec.in}, view(spec.name + ".weight"));
    weight.action = Action::dequantize;
    weight.scales = &scales;
    weight.biases = &view(spec.name + ".biases");
    weight.format = format;
    weight.compute = type_of(scales);
    used_.insert({weight.scales->name, weight.biases->name});
  }

  /// The format to quantise a dense module to, or none to leave it dense.
  std::optional<QuantFormat> format_for(const LinearSpec& spec) {
    if (!options_.quantize || spec.in % overall_.group_size != 0) return std::nullopt;
    const QuantChoice choice = choose_ ? choose_(spec.name) : QuantChoice{};
    if (!choice.quantize) return std::nullopt;
    const QuantFormat format = choice.format.value_or(overall_);
    if (choice.format) check_format(format, "quant_predicate: '" + spec.name + "'");
    if (spec.in % format.group_size != 0) {
      throw_invalid("quant_predicate: '{}' has {} input features, not a multiple of the group size {} chosen for it",
                    spec.name, spec.in, format.group_size);
    }
    if (choice.format || partly_quantized_) section_[spec.name] = format_json(format);
    return format;
  }

  void quantize(const LinearSpec& spec, QuantFormat format) {
    const TensorView& source = view(spec.name + ".weight");
    const DType dtype = type_of(source);
    const std::vector<int64_t> groups = {spec.out, spec.in / format.group_size};
    const auto part = [&](const char* suffix, QuantPart which, DType type, std::vector<int64_t> shape) {
      PlannedTensor& tensor = add(spec.name + suffix, type, std::move(shape), source);
      tensor.action = Action::quantize;
      tensor.part = which;
      tensor.format = format;
      tensor.compute = dtype;
    };
    part(".weight", QuantPart::codes, DType::u32, {spec.out, spec.in * format.bits / 32});
    part(".scales", QuantPart::scales, dtype, groups);
    part(".biases", QuantPart::biases, dtype, groups);
    formats_.insert({format.bits, format.group_size});
    ++newly_quantized_;
  }

  bool ignored(const std::string& name) const {
    const auto ends = [&](const std::string& s) { return name.ends_with(s); };
    const auto starts = [&](const std::string& s) { return name.starts_with(s); };
    return std::any_of(spec_.ignored_suffixes.begin(), spec_.ignored_suffixes.end(), ends) ||
           std::any_of(spec_.ignored_prefixes.begin(), spec_.ignored_prefixes.end(), starts);
  }

  // A part of the spec that this walk does not know would be dropped without a word.
  void check_complete() const {
    for (const auto& [name, tensor] : folder_.tensors) {
      if (!used_.contains(name) && !ignored(name)) {
        throw_error(ErrorKind::internal, "{}: tensor '{}' was not planned; converting {} is incomplete", folder_.path,
                    name, spec_.model_type);
      }
    }
  }

  [[noreturn]] void refuse_nothing_to_quantize() const {
    if (!formats_.empty()) {
      throw_invalid("{}: already quantised ({}); convert it with dequantize first, or from the original folder",
                    folder_.path, formats_text());
    }
    throw_invalid("{}: nothing to quantise: {}", folder_.path,
                  choose_ ? "the predicate leaves every layer dense"
                          : format_text("the group size {} divides the width of no layer", overall_.group_size));
  }

  std::string formats_text() const {
    std::string text;
    for (const auto& [bits, group] : formats_) {
      text += format_text("{}{}-bit group {}", text.empty() ? "" : " and ", bits, group);
    }
    return text.empty() ? "none" : text;
  }

  const io::ModelFolder& folder_;
  const nn::ModelSpec& spec_;
  const ConvertOptions& options_;
  QuantFormat overall_;
  std::optional<DType> target_;
  nn::Quantization source_quantization_;
  Json section_;
  bool partly_quantized_;
  std::function<QuantChoice(const std::string& path)> choose_;
  HfPlan plan_;
  std::set<std::string> used_;
  std::set<std::pair<int, int>> formats_;  // bits, group size
  int64_t newly_quantized_ = 0;
};

}  // namespace

void check_options(const ConvertOptions& options) {
  if (options.quantize && options.dequantize) throw_invalid("convert: choose either quantize or dequantize, not both");
  if (options.q_mode != "affine") {
    throw_error(ErrorKind::unsupported, "q_mode: '{}' is not built yet; supported: affine", options.q_mode);
  }
  check_format(overall_format(options), "convert");
  if (!options.dtype.empty() && !type_named(options.dtype)) {
    throw_invalid("dtype: expected float16, bfloat16 or float32, got '{}'", options.dtype);
  }
  if (options.threads < 0) throw_invalid("threads: expected at least 0, got {}", options.threads);
  if (!options.quant_predicate.empty()) {
    if (options.choose) throw_invalid("quant_predicate: choose a recipe or a function, not both");
    const auto names = recipe_names();
    if (std::find(names.begin(), names.end(), options.quant_predicate) == names.end()) {
      throw_invalid("quant_predicate: expected one of {}, got '{}'", join(names, ", "), options.quant_predicate);
    }
  }
}

HfPlan plan_hf(const io::ModelFolder& folder, const nn::ModelSpec& spec, const ConvertOptions& options) {
  return HfPlanner(folder, spec, options).plan();
}

}  // namespace mlxlm::conversion
