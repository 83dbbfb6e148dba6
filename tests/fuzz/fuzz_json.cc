// Any bytes as a JSON document: an Error, or a tree that survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/json.h"
#include "mlxlm/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  mlxlm::io::Json tree;
  try {
    tree = mlxlm::io::parse_json(text, "input.json");
  } catch (const mlxlm::Error& error) {
    if (std::string_view(error.what()).find("input.json") == std::string_view::npos) std::abort();
    return 0;
  }
  const std::string written = tree.dump();
  if (mlxlm::io::parse_json(written, "written.json").dump() != written) std::abort();
  return 0;
}
