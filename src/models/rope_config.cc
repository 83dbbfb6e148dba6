// The rope_scaling section of config.json. Formulas: the rotary embeddings of mlx-lm, which follow each method's paper.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/format.h"
#include "base/scalar_math.h"
#include "models/config.h"
#include "nn/rope.h"

namespace mlxlm::models {
namespace {

using nn::RopeSpec;

std::vector<float> to_float(const std::vector<double>& values) { return {values.begin(), values.end()}; }

struct Scaling {
  const Config& section;  ///< rope_scaling or rope_parameters
  const Config& config;
  double theta;
  int64_t dims;
};

void scale_linear(const Scaling& s, RopeSpec& rope) {
  const double factor = s.section.positive_number("factor", 0);
  for (float& f : rope.inv_freq) f = static_cast<float>(f / factor);
}

void scale_dynamic(const Scaling& s, RopeSpec& rope) {
  rope.dynamic = {s.theta, s.section.positive_number("factor", 0), s.config.positive("max_position_embeddings")};
}

// Wavelengths above the original context over low_freq_factor are divided by factor, those below it over
// high_freq_factor are kept, and between them the two are blended.
void scale_llama3(const Scaling& s, RopeSpec& rope) {
  const double factor = s.section.positive_number("factor", 0);
  const double low = s.section.positive_number("low_freq_factor", 1);
  const double high = s.section.positive_number("high_freq_factor", 4);
  const double original = s.section.positive_number("original_max_position_embeddings", 8192);
  std::vector<double> frequencies = nn::rope_frequencies(s.theta, s.dims);
  for (double& f : frequencies) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > original / low) {
      f /= factor;
    } else if (wavelength > original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      f = f * ((1 - smooth) / factor + smooth);
    }
  }
  rope.inv_freq = to_float(frequencies);
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * fixed_log(factor) + 1.0;
}

// Dimensions that turn more than beta_fast times in the original context keep their frequency, those that turn less
// than beta_slow times are divided by factor, with a linear ramp between.
void scale_yarn(const Scaling& s, RopeSpec& rope) {
  const double factor = s.section.positive_number("factor", 0);
  const double original = s.section.positive_number("original_max_position_embeddings", 4096);
  const auto dims = static_cast<double>(s.dims);
  const auto dim_of_turns = [&](double turns) {
    return dims * fixed_log(original / (turns * 2 * std::numbers::pi)) / (2 * fixed_log(s.theta));
  };
  const double low = std::max(std::floor(dim_of_turns(s.section.positive_number("beta_fast", 32))), 0.0);
  double high = std::min(std::ceil(dim_of_turns(s.section.positive_number("beta_slow", 1))), dims - 1);
  if (low == high) high += 0.001;
  std::vector<double> frequencies = nn::rope_frequencies(s.theta, s.dims);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= (1 - ramp) + ramp / factor;
  }
  rope.inv_freq = to_float(frequencies);
  rope.magnitude = static_cast<float>(yarn_magnitude(factor, s.section.number("mscale", 1)) /
                                      yarn_magnitude(factor, s.section.number("mscale_all_dim", 0)));
}

// Every dimension has its own divisor. The reference always uses the long factors.
void scale_longrope(const Scaling& s, RopeSpec& rope) {
  const io::Json* factors = s.section.find("long_factor");
  const auto half = static_cast<size_t>(s.dims / 2);
  if (factors == nullptr || !factors->is_array() || factors->size() != half) {
    s.section.fail("long_factor", format_text("a list of {} numbers", half));
  }
  std::vector<double> frequencies = nn::rope_frequencies(s.theta, s.dims);
  for (size_t i = 0; i < half; ++i) {
    if (!(*factors)[i].is_number() || !((*factors)[i].get<double>() > 0)) {
      s.section.fail("long_factor", format_text("a list of {} numbers above 0", half));
    }
    frequencies[i] /= (*factors)[i].get<double>();
  }
  rope.inv_freq = to_float(frequencies);
  const double original = static_cast<double>(s.section.positive("original_max_position_embeddings"));
  const double factor = static_cast<double>(s.config.positive("max_position_embeddings")) / original;
  if (factor > 1) rope.magnitude = static_cast<float>(std::sqrt(1 + fixed_log(factor) / fixed_log(original)));
}

void keep(const Scaling&, RopeSpec&) {}

struct ScalingType {
  const char* name;
  void (*apply)(const Scaling&, RopeSpec&);
};

constexpr ScalingType kScalingTypes[] = {
    {"default", keep},
    {"linear", scale_linear},
    {"dynamic", scale_dynamic},
    {"llama3", scale_llama3},
    {"yarn", scale_yarn},
    {"deepseek_yarn", scale_yarn},
    {"telechat3-yarn", scale_yarn},
    {"longrope", scale_longrope},
    {"su", scale_longrope},
    {"mrope", keep},  // the text part of a vision model rotates all sections by one position
};

}  // namespace

RopeSpec plain_rope(double theta, int64_t dims) {
  RopeSpec rope;
  rope.inv_freq = to_float(nn::rope_frequencies(theta, dims));
  return rope;
}

RopeSpec read_rope(const Config& config, int64_t dims, double default_theta) {
  const io::Json* scaling = config.find("rope_scaling");
  const io::Json* parameters = config.find("rope_parameters");
  if (scaling == nullptr) scaling = parameters;
  double theta = config.positive_number("rope_theta", 0.5);
  if (config.find("rope_theta") == nullptr) {
    theta = default_theta;
    if (parameters != nullptr && parameters->is_object()) {
      theta = Config(*parameters, config.where() + ": rope_parameters").positive_number("rope_theta", default_theta);
    }
  }
  if (!(theta > 1)) {
    throw_invalid("{}: \"rope_theta\": expected a number above 1{}", config.where(),
                  theta <= 0 ? ", got nothing" : format_text(", got {}", theta));
  }
  RopeSpec rope = plain_rope(theta, dims);
  if (scaling == nullptr) return rope;

  const char* key = scaling == parameters ? "rope_parameters" : "rope_scaling";
  if (!scaling->is_object()) config.fail(key, "an object");
  const Config section(*scaling, config.where() + ": " + key);
  const std::string type = section.string("type", section.string("rope_type", "default"));
  for (const ScalingType& known : kScalingTypes) {
    if (type == known.name) {
      known.apply({section, config, theta, dims}, rope);
      return rope;
    }
  }
  std::vector<std::string> names;
  for (const ScalingType& known : kScalingTypes) names.emplace_back(known.name);
  throw_error(ErrorKind::unsupported, "{}: rope type \"{}\" is not known; known: {}", section.where(), type,
              join(names, ", "));
}

}  // namespace mlxlm::models
