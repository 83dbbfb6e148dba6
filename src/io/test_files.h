// Helpers of the tests of this layer: files and folders that vanish, and safetensors bytes with any header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/json.h"
#include "io/model_folder.h"

namespace mlxlm::io {

/// A fresh folder under the system's temporary folder, removed with all it holds.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "mlxlm-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw_error(ErrorKind::io, "{}: cannot create", name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

/// Length, header and data as a safetensors file has them, with a length that may lie.
inline std::string safetensors_bytes(std::string_view header, std::string_view data,
                                     std::optional<uint64_t> length = std::nullopt) {
  std::string out;
  const uint64_t n = length.value_or(header.size());
  for (size_t i = 0; i < 8; ++i) out.push_back(static_cast<char>(n >> (8 * i) & 0xFF));
  return out.append(header).append(data);
}

/// A model folder in memory.
class FolderInMemory final : public FolderSource {
 public:
  explicit FolderInMemory(std::map<std::string, std::string> files) : files_(std::move(files)) {}
  std::string path() const override { return "folder"; }
  std::vector<std::string> list() const override {
    std::vector<std::string> names;
    for (const auto& [name, text] : files_) names.push_back(name);
    return names;
  }
  std::optional<std::string> read_text(const std::string& name) const override {
    const auto it = files_.find(name);
    return it == files_.end() ? std::nullopt : std::optional(it->second);
  }
  std::shared_ptr<const MappedFile> map(const std::string& name) const override {
    return MappedFile::from_bytes("folder/" + name, to_bytes(files_.at(name)));
  }

 private:
  std::map<std::string, std::string> files_;
};

/// The message of the Error that an action throws, and its kind; "" when it throws none.
struct Thrown {
  std::string message;
  std::optional<ErrorKind> kind;
};
template <typename Action>
Thrown thrown_by(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.what(), error.kind()};
  }
  return {};
}

}  // namespace mlxlm::io
