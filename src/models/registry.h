// The table of model types.
#pragma once

#include <span>
#include <string>

#include "io/model_folder.h"
#include "models/config.h"
#include "nn/spec.h"

namespace mlxlm::models {

/// Builds the spec of one model_type. `folder` tells which tensors there are, for types that look (a tied head).
using Builder = nn::ModelSpec (*)(const Config& config, const io::ModelFolder& folder);

struct ModelType {
  const char* name;
  Builder build;
};

/// One line per supported model_type; other names of the same model stand beside it.
std::span<const ModelType> model_types();

/// The spec of the folder's config.json. Throws Error for an unknown model_type, listing those supported, and for a
/// config that contradicts itself.
nn::ModelSpec build_spec(const io::ModelFolder& folder);

}  // namespace mlxlm::models
