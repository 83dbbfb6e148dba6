// Any files as a model folder: an Error, or tensors that lie in the files which the folder says hold them.
// The input is a list of files: a byte that chooses the name, two bytes of length, the content.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "io/model_folder.h"
#include "io/test_files.h"
#include "mlxlm/error.h"

namespace mlxlm {
namespace {

constexpr std::array<const char*, 6> kNames = {
    "config.json",       "generation_config.json", "model.safetensors.index.json",
    "model.safetensors", "model-2.safetensors",    "other.safetensors"};

std::map<std::string, std::string> files_of(std::string_view input) {
  std::map<std::string, std::string> files;
  while (input.size() >= 3) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(input[i]); };
    const size_t length = byte(1) + 256u * byte(2);
    files[kNames[byte(0) % kNames.size()]] = input.substr(3, length);
    input.remove_prefix(std::min(input.size(), 3 + length));
  }
  return files;
}

int run(const uint8_t* data, size_t size) {
  try {
    const io::FolderInMemory files(files_of(std::string_view(reinterpret_cast<const char*>(data), size)));
    const auto folder = io::open_model_folder(files);
    for (const auto& [name, tensor] : folder->tensors) {
      if (tensor->name != name || folder->file_of(*tensor) == folder->path) std::abort();
      unsigned sum = 0;
      for (size_t i = 0; i < tensor->bytes; ++i) sum += std::to_integer<unsigned>(tensor->data[i]);
      volatile unsigned sink = sum;  // the sanitizer watches these reads
      static_cast<void>(sink);
    }
  } catch (const Error& error) {
    if (std::string_view(error.what()).find("folder") == std::string_view::npos) std::abort();
  }
  return 0;
}

}  // namespace
}  // namespace mlxlm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return mlxlm::run(data, size); }
