// A model folder in MLX format: config.json, generation_config.json and the weight files.
#pragma once

#include <memory>
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
};

/// Opens a folder. A complete model.safetensors.index.json decides which files are read (a stray file is ignored, a
/// missing shard is an error that names it); without an index all model*.safetensors are read. Throws Error.
std::shared_ptr<const ModelFolder> open_model_folder(const std::string& path);

}  // namespace mlxlm::io
