// Which model, precision and options a cache file of ours belongs to.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mlxlm/prompt_cache.h"
#include "nn/executor.h"

namespace mlxlm::engine {

/// A hash of everything that decides a model's keys and values: sizes, ropes, norms, and a sample of every matrix, so
/// that two models of one architecture differ too.
std::string model_fingerprint(const nn::Executor& executor);

/// What our files say beyond mlx-lm's, as metadata entries whose names start with "mlxlm_".
struct CacheIdentity {
  std::string model;      ///< model_fingerprint
  std::string precision;  ///< "exact" or "fast"
  PromptCacheOptions options;
  int64_t start = 0;            ///< position of the first id
  std::vector<int32_t> tokens;  ///< up to the end
};

void add_identity(const CacheIdentity& identity, std::map<std::string, std::string>& metadata);
/// Takes the entries out of the metadata of the file `path`. False: it has none, so mlx-lm wrote it. Throws Error for
/// entries that are incomplete, not known or malformed.
bool take_identity(const std::string& path, std::map<std::string, std::string>& metadata, CacheIdentity& identity);
/// Throws Error for a name of ours among a user's.
void check_user_metadata(const std::map<std::string, std::string>& metadata);

}  // namespace mlxlm::engine
