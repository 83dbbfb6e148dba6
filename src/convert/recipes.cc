#include "convert/recipes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/error.h"

namespace mlxlm::conversion {
namespace {

struct Recipe {
  const char* name;
  int low_bits;
  int high_bits;
};
constexpr std::array<Recipe, 4> kRecipes = {
    {{"mixed_2_6", 2, 6}, {"mixed_3_4", 3, 4}, {"mixed_3_6", 3, 6}, {"mixed_4_6", 4, 6}}};
constexpr std::array<const char*, 4> kNames = {kRecipes[0].name, kRecipes[1].name, kRecipes[2].name, kRecipes[3].name};

/// The layer of "model.layers.3.mlp.down_proj": the first part that is a number. A module outside the layers counts as
/// part of layer 0.
int64_t layer_of(std::string_view path) {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('.'));
    int64_t layer = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), layer);
    if (error == std::errc() && end == part.data() + part.size()) return layer;
    path.remove_prefix(std::min(path.size(), part.size() + 1));
  }
  return 0;
}

bool wants_more_bits(int64_t layer, int64_t n_layers) {
  const int64_t first = n_layers / 8;
  return layer < first || layer >= 7 * n_layers / 8 || (layer - first) % 3 == 2;
}

bool contains(const std::string& path, const char* part) { return path.find(part) != std::string::npos; }

}  // namespace

std::span<const char* const> recipe_names() { return kNames; }

std::function<QuantChoice(const std::string& path)> make_recipe(const std::string& name, const nn::ModelSpec& spec,
                                                                int group_size) {
  for (const Recipe& recipe : kRecipes) {
    if (name != recipe.name) continue;
    const auto n_layers = static_cast<int64_t>(spec.layers.size());
    return [recipe, n_layers, group_size](const std::string& path) {
      const bool sensitive = contains(path, "v_proj") || contains(path, "v_a_proj") || contains(path, "v_b_proj") ||
                             contains(path, "down_proj");
      const bool high = (sensitive && wants_more_bits(layer_of(path), n_layers)) || contains(path, "lm_head");
      return QuantChoice{true, QuantFormat{high ? recipe.high_bits : recipe.low_bits, group_size}};
    };
  }
  throw_invalid("quant_predicate: expected one of {}, got '{}'", join(kNames, ", "), name);
}

}  // namespace mlxlm::conversion
