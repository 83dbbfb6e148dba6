#include "models/config.h"

#include "base/error.h"

namespace mlxlm::models {

using io::Json;

const Json* Config::find(const char* key) const {
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

void Config::fail(const char* key, const std::string& expected) const {
  const Json* value = find(key);
  throw_invalid("{}: \"{}\": expected {}, got {}", where_, key, expected,
                value == nullptr ? "nothing" : value->dump(-1, ' ', false, Json::error_handler_t::replace));
}

int64_t Config::positive(const char* key) const {
  const Json* value = find(key);
  // 2^31 bounds every size, so that products of two sizes stay inside 64 bits.
  if (value == nullptr || !value->is_number_integer() || *value < 1 || *value > 0x7fffffff) {
    fail(key, "an integer of at least 1");
  }
  return value->get<int64_t>();
}

int64_t Config::positive(const char* key, int64_t otherwise) const {
  return find(key) == nullptr ? otherwise : positive(key);
}

double Config::number(const char* key, double otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) fail(key, "a number");
  return value->get<double>();
}

double Config::positive_number(const char* key, double otherwise) const {
  const double value = number(key, otherwise);
  if (!(value > 0)) fail(key, "a number above 0");
  return value;
}

bool Config::boolean(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::string Config::string(const char* key, const std::string& otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) fail(key, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<std::string>> Config::strings(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail(key, "a list of strings");
  std::vector<std::string> strings;
  for (const Json& item : *value) {
    if (!item.is_string()) fail(key, "a list of strings");
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

}  // namespace mlxlm::models
