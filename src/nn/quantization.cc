#include "nn/quantization.h"

#include <array>

#include "base/error.h"

namespace mlxlm::nn {
namespace {

using io::Json;

constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kGroupSizes = {32, 64, 128};

template <size_t N>
int read_choice(const Json& section, const char* key, int otherwise, const std::array<int, N>& choices,
                const std::string& where) {
  const auto it = section.find(key);
  if (it == section.end() || it->is_null()) return otherwise;
  if (it->is_number_integer()) {
    for (const int choice : choices) {
      if (*it == choice) return choice;
    }
  }
  throw_invalid("{}.{}: expected one of {}, got {}", where, key, join(choices, ", "), it->dump());
}

QuantizedFormat read_format(const Json& section, const std::string& where) {
  const auto mode = section.find("mode");
  if (mode != section.end() && !mode->is_null() && *mode != "affine") {
    throw_error(ErrorKind::unsupported,
                "{}.mode: {} is not supported yet; supported: \"affine\". Convert the model with "
                "affine quantisation",
                where, mode->dump());
  }
  QuantizedFormat format;  // absent keys take the mode's defaults, as in the reference
  format.bits = read_choice(section, "bits", format.bits, kBits, where);
  format.group_size = read_choice(section, "group_size", format.group_size, kGroupSizes, where);
  return format;
}

const Json* find_section(const Json& config) {
  for (const char* key : {"quantization", "quantization_config"}) {
    const auto it = config.find(key);
    if (it != config.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

}  // namespace

std::optional<QuantizedFormat> Quantization::of_module(const std::string& path, bool has_scales) const {
  if (!present) {
    if (has_scales) {
      throw_invalid(
          "{}: '{}.scales' is in the weights but config.json has no \"quantization\" section that gives its "
          "group_size and bits",
          config_path, path);
    }
    return std::nullopt;
  }
  const auto listed = modules.find(path);
  if (listed != modules.end()) return listed->second;
  return has_scales ? std::optional(overall) : std::nullopt;
}

Quantization read_quantization(const io::ModelFolder& folder) {
  Quantization q;
  q.config_path = folder.path + "/config.json";
  const Json* section = find_section(folder.config);
  if (section == nullptr) return q;
  const std::string where = q.config_path + ": quantization";
  if (!section->is_object()) throw_invalid("{}: expected an object, got {}", where, section->dump());
  if (section->contains("quant_method")) {
    throw_error(ErrorKind::unsupported, "{}: quant_method {} is not supported yet; supported: MLX affine quantisation",
                where, (*section)["quant_method"].dump());
  }
  q.present = true;
  q.overall = read_format(*section, where);
  for (const auto& [key, value] : section->items()) {
    if (value.is_object()) {
      q.modules[key] = read_format(value, format_text("{}.{}", where, key));
    } else if (value.is_boolean()) {
      // `true` means the overall format; `false` leaves the module dense.
      q.modules[key] = value.get<bool>() ? std::optional(q.overall) : std::nullopt;
    }
  }
  return q;
}

}  // namespace mlxlm::nn
