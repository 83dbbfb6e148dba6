// Rotary scaling: GGUF's keys, or its table of factors, as config.json's rope_scaling.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "convert/gguf_model.h"

namespace mlxlm::conversion {
namespace {

using io::GgufFile;
using io::Json;

/// Llama 3's scaling: frequencies with wavelengths beyond original / low are divided by factor, those below
/// original / high kept, and those between blended.
struct Llama3Scaling {
  double factor = 1;
  double low = 1;
  double high = 4;
  double original = 8192;

  double divisor(double wavelength) const {
    if (wavelength < original / high) return 1;
    if (wavelength > original / low) return factor;
    const double smooth = (original / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  }
};

double wavelength(size_t i, size_t half, double theta) {
  return 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(half));
}

bool explains(const Llama3Scaling& scaling, const std::vector<float>& factors, double theta) {
  for (size_t i = 0; i < factors.size(); ++i) {
    const double expected = scaling.divisor(wavelength(i, factors.size(), theta));
    if (!(std::abs(expected - double{factors[i]}) <= 1e-4 * expected)) return false;
  }
  return true;
}

/// The blended part is linear in 1 / wavelength, so two of its points give the line. Scaling low, high and original
/// together changes nothing, so low is 1.
std::optional<Llama3Scaling> fit(const std::vector<float>& factors, double theta) {
  const double factor = factors.back();
  std::vector<std::pair<double, double>> points;  // 1 / wavelength, smooth
  for (size_t i = 0; i < factors.size(); ++i) {
    const double f = factors[i];
    if (f > 1 + 1e-6 && f < factor * (1 - 1e-6)) {
      points.emplace_back(1 / wavelength(i, factors.size(), theta), (1 / f - 1 / factor) / (1 - 1 / factor));
    }
  }
  if (points.size() < 2) return std::nullopt;
  const auto [x0, y0] = points.front();
  const auto [x1, y1] = points.back();
  const double slope = (y0 - y1) / (x0 - x1);  // original / (high − low)
  const double intercept = y0 - slope * x0;    // −low / (high − low)
  if (!(slope > 0) || !(intercept < 0)) return std::nullopt;
  Llama3Scaling scaling{factor, 1, 1 - 1 / intercept, 0};
  scaling.original = std::round(slope * (scaling.high - 1));
  scaling.high = std::round(scaling.high * 1e3) / 1e3;
  return scaling;
}

Json llama3_json(const GgufFile& gguf, const std::vector<float>& factors, double theta) {
  Llama3Scaling usual;
  usual.factor = factors.back();
  std::optional<Llama3Scaling> found;
  if (explains(usual, factors, theta)) {
    found = usual;
  } else if (usual.factor > 1) {
    found = fit(factors, theta);
  }
  if (!found || !(found->factor >= 1) || !explains(*found, factors, theta)) {
    throw_error(ErrorKind::unsupported,
                "{}: tensor 'rope_freqs.weight': these factors are not of Llama 3's form, and config.json has no other "
                "place for them",
                gguf.path());
  }
  return {{"factor", found->factor},
          {"high_freq_factor", found->high},
          {"low_freq_factor", found->low},
          {"original_max_position_embeddings", static_cast<int64_t>(found->original)},
          {"rope_type", "llama3"}};
}

}  // namespace

Json rope_scaling(const GgufFile& gguf, const std::string& architecture, const std::vector<float>& factors,
                  double rope_theta) {
  const auto key = [&](const char* name) { return format_text("{}.rope.{}", architecture, name); };
  const double linear = gguf.find_number(key("scale_linear")).value_or(1);
  const std::string type(gguf.find_string(key("scaling.type")).value_or(linear == 1 ? "none" : "linear"));
  const double factor = gguf.find_number(key("scaling.factor")).value_or(linear);
  const bool has_factors = std::any_of(factors.begin(), factors.end(), [](float f) { return f != 1; });
  if (!(rope_theta > 1) || !std::isfinite(rope_theta)) {
    throw_invalid("{}: key '{}': expected a number above 1, got {}", gguf.path(), key("freq_base"), rope_theta);
  }
  if (has_factors) {
    if (type != "none" && factor != 1) {
      throw_error(ErrorKind::unsupported, "{}: rope_freqs.weight together with rope scaling '{}' cannot be converted",
                  gguf.path(), type);
    }
    return llama3_json(gguf, factors, rope_theta);
  }
  if (type == "none" || (type == "linear" && factor == 1)) return nullptr;
  if (!(factor > 0) || !std::isfinite(factor)) {
    throw_invalid("{}: key '{}': expected a positive number, got {}", gguf.path(), key("scaling.factor"), factor);
  }
  if (type == "linear") return {{"factor", factor}, {"rope_type", "linear"}};
  if (type == "yarn") {
    Json json = {{"factor", factor},
                 {"original_max_position_embeddings", gguf.integer(key("scaling.original_context_length"))},
                 {"rope_type", "yarn"}};
    if (const auto fast = gguf.find_number(key("scaling.yarn_beta_fast"))) json["beta_fast"] = *fast;
    if (const auto slow = gguf.find_number(key("scaling.yarn_beta_slow"))) json["beta_slow"] = *slow;
    return json;
  }
  throw_error(ErrorKind::unsupported, "{}: key '{}': '{}' cannot be converted; supported: none, linear, yarn",
              gguf.path(), key("scaling.type"), type);
}

}  // namespace mlxlm::conversion
