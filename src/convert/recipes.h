// The mixed-bit recipes of --quant-predicate.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "mlxlm/convert.h"
#include "nn/spec.h"

namespace mlxlm::conversion {

/// "mixed_2_6", …
std::span<const char* const> recipe_names();

/// The recipe's choice for the modules of this model: more bits for the value and down projections of the first and
/// last eighth of the layers and of every third between, and for the head. Throws Error(invalid_value) for an unknown
/// name.
std::function<QuantChoice(const std::string& path)> make_recipe(const std::string& name, const nn::ModelSpec& spec,
                                                                int group_size);

}  // namespace mlxlm::conversion
