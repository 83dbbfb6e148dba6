// The keys and values of a conversation, kept between calls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mlxlm/model.h"

namespace mlxlm {

/// How keys and values are held.
struct PromptCacheOptions {
  /// 0: everything is kept. m: the query at position q reads the keys k < keep and k > q − (m − keep); a model's own
  /// sliding windows stay as they are. Memory is bounded by it.
  int64_t max_kv_size = 0;
  int64_t keep = 4;
  int kv_bits = 0;         ///< 0: not quantised; 4 or 8
  int kv_group_size = 64;  ///< values of a head that share a scale: 32, 64 or 128, a divisor of head_dim
  /// Queries from max(1, this) on read quantised keys and values, earlier ones do not.
  int64_t quantized_kv_start = 0;

  bool operator==(const PromptCacheOptions&) const = default;
};

/// Belongs to one request at a time.
class PromptCache {
 public:
  /// Throws Error(invalid_value) where the model cannot hold its keys and values so.
  explicit PromptCache(const Model& model, const PromptCacheOptions& options = {});
  ~PromptCache();
  PromptCache(PromptCache&&) noexcept;
  PromptCache& operator=(PromptCache&&) noexcept;

  int64_t size() const;  ///< tokens held
  /// Their ids, [size()]; after loading a file of mlx-lm's, which has none, only those that followed.
  const std::vector<int32_t>& tokens() const;
  const PromptCacheOptions& options() const;
  int64_t bytes() const;  ///< of keys and values, blocks shared with other caches included

  /// A cache with the same content; blocks are shared until one of them writes.
  PromptCache fork() const;
  /// Whether trim(n) would forget exactly n tokens.
  bool can_trim(int64_t n) const;
  /// Forgets the last n tokens (at most all) and returns how many it forgot. What is left may be computed again from
  /// the token ids when the cache is used next. 0: that would need ids that are not known (of a file of mlx-lm's whose
  /// window has moved on).
  int64_t trim(int64_t n);

  /// Writes mlx-lm's own format: safetensors with tensors "<layer>.0", "<layer>.1" and string metadata. What is still
  /// to be computed is computed first, so that mlx-lm misses nothing. Names in `metadata` must not start with "mlxlm_".
  void save(const std::string& path, const std::map<std::string, std::string>& metadata = {}) const;

  struct State;
  State& state() { return *state_; }
  const State& state() const { return *state_; }
  explicit PromptCache(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

/// Feeds `tokens` behind what the cache holds and returns the logits after each of them, [tokens.size(), vocab_size].
/// Throws Error for no tokens, ids outside the vocabulary, and a cache of another model or in use; the cache is then as
/// it was. interrupted: as GenerateOptions::interrupted; where it returns true, Error(cancelled) is thrown.
std::vector<float> compute_logits(const Model& model, std::span<const int32_t> tokens, PromptCache& cache,
                                  const std::function<bool()>& interrupted = {});

/// A cache file with the metadata its writer gave.
struct LoadedPromptCache {
  PromptCache cache;
  std::map<std::string, std::string> metadata;
};
/// Reads a file of ours or of mlx-lm's. Throws Error naming what does not fit the model.
LoadedPromptCache load_prompt_cache(const Model& model, const std::string& path);
/// The metadata alone, e.g. to find the model that wrote it.
std::map<std::string, std::string> read_prompt_cache_metadata(const std::string& path);

}  // namespace mlxlm
