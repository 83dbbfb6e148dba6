// A model folder in MLX format: config.json, generation_config.json and the weight files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"

namespace mlxlm::io {

/// The opened folder. Weight files stay mapped as long as this lives; nothing of their data is read by opening.
struct ModelFolder {
  std::string path;
  Json config;             ///< config.json; Python's {"__float__": "Infinity"} already turned into the number
  Json generation_config;  ///< generation_config.json, or an empty object when absent
  std::vector<SafetensorsFile> files;
  std::unordered_map<std::string, const TensorView*> tensors;  ///< by name, into `files`

  /// The file that holds a tensor, for messages.
  const std::string& file_of(const TensorView& tensor) const;
  /// Takes a part of a tensor's data out of resident memory; it is read again when touched.
  void release(const TensorView& tensor, std::span<const std::byte> part) const;

 private:
  const SafetensorsFile* find_file(const TensorView& tensor) const;
};

/// Where the files of a folder come from: the disk, or bytes in memory for tests and fuzzing.
class FolderSource {
 public:
  virtual ~FolderSource() = default;
  virtual std::string path() const = 0;
  /// Names of the files, sorted. Throws Error(not_found) when there is no such folder.
  virtual std::vector<std::string> list() const = 0;
  virtual std::optional<std::string> read_text(const std::string& name) const = 0;
  virtual std::shared_ptr<const MappedFile> map(const std::string& name) const = 0;
};

/// Opens a folder. A complete model.safetensors.index.json decides which files are read (a stray file is ignored, a
/// missing shard is an error that names it); without an index all model*.safetensors are read. Throws Error.
std::shared_ptr<const ModelFolder> open_model_folder(const std::string& path);
std::shared_ptr<const ModelFolder> open_model_folder(const FolderSource& source);

/// Turns every {"__float__": "Infinity"} (also "-Infinity", "NaN") of a config into the number it stands for.
void replace_float_objects(Json& value);

}  // namespace mlxlm::io
