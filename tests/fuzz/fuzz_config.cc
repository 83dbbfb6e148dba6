// Any bytes as the config.json of a model folder: an Error, or a spec. Nothing huge is allocated and nothing overflows.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/model_folder.h"
#include "mlxlm/error.h"
#include "models/registry.h"

namespace {

/// A folder with a config.json of the fuzzer's making and one weight file without tensors.
class OneConfig : public mlxlm::io::FolderSource {
 public:
  explicit OneConfig(std::string config) : config_(std::move(config)) {}
  std::string path() const override { return "folder"; }
  std::vector<std::string> list() const override { return {"config.json", "model.safetensors"}; }
  std::optional<std::string> read_text(const std::string& name) const override {
    if (name == "config.json") return config_;
    return std::nullopt;
  }
  std::shared_ptr<const mlxlm::io::MappedFile> map(const std::string& name) const override {
    static constexpr char kEmpty[] = "\x02\0\0\0\0\0\0\0{}";
    return mlxlm::io::MappedFile::from_bytes(name, std::as_bytes(std::span(kEmpty, sizeof kEmpty - 1)));
  }

 private:
  std::string config_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const OneConfig source(std::string(reinterpret_cast<const char*>(data), size));
    mlxlm::models::build_spec(*mlxlm::io::open_model_folder(source));
  } catch (const mlxlm::Error&) {
    return 0;
  }
  return 0;
}
