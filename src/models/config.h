// Typed access to config.json with errors that name the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "nn/spec.h"

namespace mlxlm::models {

/// A null value counts as absent, as in the reference. Throws Error(invalid_value) for a wrong type or range.
class Config {
 public:
  Config(const io::Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const io::Json& json() const { return json_; }
  const std::string& where() const { return where_; }  ///< "DIR/config.json", for messages
  const io::Json* find(const char* key) const;         ///< null when absent

  int64_t positive(const char* key) const;                     ///< required, ≥ 1
  int64_t positive(const char* key, int64_t otherwise) const;  ///< ≥ 1 when present
  double number(const char* key, double otherwise) const;
  double positive_number(const char* key, double otherwise) const;
  bool boolean(const char* key, bool otherwise) const;
  std::string string(const char* key, const std::string& otherwise) const;
  std::optional<std::vector<std::string>> strings(const char* key) const;

  [[noreturn]] void fail(const char* key, const std::string& expected) const;

 private:
  const io::Json& json_;
  std::string where_;
};

/// The rope of `dims` dims from rope_theta and rope_scaling, or from rope_parameters (newer exports), which the
/// reference partly ignores: both are read, and rope_scaling wins. An unknown type is an error.
nn::RopeSpec read_rope(const Config& config, int64_t dims, double default_theta);
/// Rope without any scaling, e.g. for the sliding layers of Gemma 3.
nn::RopeSpec plain_rope(double theta, int64_t dims);

}  // namespace mlxlm::models
