// Values that the C ABI of rust/ hands out, freed with their owner, and its statuses as exceptions.
#pragma once

#include <string>

#include "mlxlm_text.h"

namespace mlxlm::text {

/// An owned string of the C ABI.
struct RustString : MlxlmString {
  RustString() : MlxlmString{nullptr, 0, 0} {}
  ~RustString() { mlxlm_string_free(this); }
  RustString(const RustString&) = delete;
  RustString& operator=(const RustString&) = delete;
  std::string str() const { return size == 0 ? std::string() : std::string(data, size); }
};

struct RustIds : MlxlmIds {
  RustIds() : MlxlmIds{nullptr, 0, 0} {}
  ~RustIds() { mlxlm_ids_free(this); }
  RustIds(const RustIds&) = delete;
  RustIds& operator=(const RustIds&) = delete;
};

/// Throws mlxlm::Error unless the status is MLXLM_OK. `where` stands first in the message; `action` says what was being
/// done.
void check_rust(MlxlmStatus status, const RustString& error, const std::string& where, const char* action);

}  // namespace mlxlm::text
