// The `quantization` section of config.json: how each module's weights are packed.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "io/model_folder.h"

namespace mlxlm::nn {

/// Affine quantisation: bits in {2,3,4,5,6,8}, group_size in {32,64,128}.
struct QuantizedFormat {
  int bits = 4;
  int group_size = 64;
};

class Quantization {
 public:
  /// The format of a module, or none when it is dense. A listed module follows its entry; an unlisted one is quantised
  /// (with the overall format) exactly when the checkpoint has its scales.
  std::optional<QuantizedFormat> of_module(const std::string& path, bool has_scales) const;

  bool present = false;     ///< config.json has the section
  std::string config_path;  ///< for messages
  QuantizedFormat overall;
  std::map<std::string, std::optional<QuantizedFormat>> modules;  ///< none: dense
};

/// Reads `quantization` (or its mirror `quantization_config`). Throws Error for a mode or width not supported.
Quantization read_quantization(const io::ModelFolder& folder);

}  // namespace mlxlm::nn
