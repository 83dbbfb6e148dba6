#include "io/json.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "io/files.h"
#include "io/json_reader.h"

namespace mlxlm::io {

Json parse_json(std::string_view text, const std::string& where) {
  JsonReader reader(text, where);
  Json value = reader.read_value();
  reader.finish();
  return value;
}

Json make_object(std::vector<std::pair<std::string, Json>> members) {
  // ordered_map looks keys up one by one, which is quadratic; sorting finds the duplicates of a large object.
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return members[a].first < members[b].first; });
  std::vector<bool> superseded(members.size());
  for (size_t i = 0; i < order.size();) {
    size_t last = i;
    while (last + 1 < order.size() && members[order[last + 1]].first == members[order[i]].first) {
      superseded[order[++last]] = true;
    }
    if (last != i) members[order[i]].second = std::move(members[order[last]].second);
    i = last + 1;
  }
  Json object = Json::object();
  auto& map = object.get_ref<Json::object_t&>();
  map.reserve(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    if (!superseded[i]) {
      static_cast<Json::object_t::Container&>(map).emplace_back(std::move(members[i].first),
                                                                std::move(members[i].second));
    }
  }
  return object;
}

Json read_json_file(const std::string& path) { return parse_json(read_text_file(path), path); }

std::string read_text_file(const std::string& path) {
  InputFile file(path);
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
}

}  // namespace mlxlm::io
