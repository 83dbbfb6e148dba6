// The files of a converted folder beside its weights.
#pragma once

#include <string>
#include <vector>

#include "convert/new_folder.h"
#include "io/json.h"
#include "io/model_folder.h"

namespace mlxlm::conversion {

/// config.json of the new folder as mlx-lm writes it: sorted, with the `quantization` section (null: none) under both
/// of its names and generation_config.json's EOS ids, without _name_or_path and vision_config.
io::Json new_config(const io::ModelFolder& folder, const io::Json& quantization);

/// Paths relative to the folder of what goes along unchanged: tokenizer files, chat templates, generation_config.json
/// and code. Throws Error(not_found) when there is no tokenizer.
std::vector<std::string> files_to_copy(const std::string& path);
void copy_files(const std::string& from, const std::vector<std::string>& names, const NewFolder& to);

/// README.md with the tags that the Hub reads.
std::string model_card();

}  // namespace mlxlm::conversion
