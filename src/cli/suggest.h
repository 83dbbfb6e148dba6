// "Did you mean": the nearest of the known names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mlxlm::cli {

/// The candidate nearest to `word` in edit distance (insert, delete, replace, swap of neighbours), or "" when none is
/// nearer than about a third of the word's length. A candidate that `word` begins, or that begins with it, counts as
/// near.
std::string suggest(std::string_view word, std::span<const std::string> candidates);

}  // namespace mlxlm::cli
