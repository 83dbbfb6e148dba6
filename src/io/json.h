// JSON documents: nlohmann::json with the errors of this project.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlxlm::io {

/// Keeps the order of keys, as Python does.
using Json = nlohmann::ordered_json;

/// Parses text; `where` (a path) stands first in the message. Depth is limited; duplicate keys keep the last.
/// Python's non-standard NaN, Infinity and −Infinity are accepted where json.load accepts them.
Json parse_json(std::string_view text, const std::string& where);
/// Reads and parses a file. Throws Error(not_found) when it is not there.
Json read_json_file(const std::string& path);
/// An object with these members in this order, in linear time (ordered_json searches at every insertion). Of duplicate
/// keys the last value counts, in the place of the first.
Json make_object(std::vector<std::pair<std::string, Json>> members);
/// Whole file as text. Throws Error(not_found or io).
std::string read_text_file(const std::string& path);
/// Writes through a temporary file and a rename, so a reader never sees half of it.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace mlxlm::io
