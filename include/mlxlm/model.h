// Loading a model folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "mlxlm/hub.h"
#include "mlxlm/tokenizer.h"

namespace mlxlm {

namespace engine {
class ModelImpl;
}

/// How the quantised matrix products are computed.
enum class Precision {
  fast,   ///< activations in int8 per 32 values; perplexity within 0.5 % of exact; KV in 16 bits
  exact,  ///< float32 activations, accumulation and KV: the reference
};

struct LoadOptions {
  Precision precision = Precision::fast;
  int threads = 0;       ///< 0: one per core this process may use
  int64_t kv_bytes = 0;  ///< budget for the keys and values of all requests together; 0: what the system gives
  /// Keys and values of finished requests kept for later ones that begin alike; the least recently used go first.
  int64_t prefix_cache_bytes = int64_t{256} << 20;
  std::string isa{};       ///< kernel set: "scalar", "avx2", "neon", "neon_dot"; empty: the best this CPU has (or the
                           ///< MLXLM_ISA variable)
  std::string revision{};  ///< branch, tag or commit of a Hub repository; empty: main. Nothing to a folder
  std::function<void(const DownloadProgress&)> download_progress{};  ///< as HubOptions::progress
  std::stop_token cancel{};  ///< request_stop() ends a download with Error(cancelled)
};

/// Facts about a loaded model, for people and for planning memory.
struct ModelInfo {
  std::string path;
  std::string model_type;
  int64_t parameters = 0;       ///< logical weights, a quantised weight counting as one
  int64_t weight_bytes = 0;     ///< bytes of the tensors in use
  int64_t bytes_per_token = 0;  ///< weight bytes read for one decoded token (embedding rows aside)
  int64_t macs_per_token = 0;   ///< multiply-adds of the matrix products for one token with logits
  double bits_per_weight = 0;
  int64_t n_layers = 0;
  std::vector<int64_t> windows;  ///< [n_layers] how many of the last positions a layer sees, its own included; 0: all
  int64_t hidden_size = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_context = 0;   ///< max_position_embeddings; 0: the config does not say
  std::string quantization;  ///< e.g. "4-bit group 32", "float16", "mixed: 4-bit group 32, 8-bit group 32"
  std::string kernels;       ///< instruction set in use
  int threads = 0;
  Precision precision = Precision::fast;
};

/// A loaded model. A cheap shared handle: copies share one immutable object, safe to use from many threads.
class Model {
 public:
  const ModelInfo& info() const;
  /// Bytes of keys and values for `tokens` positions of one sequence.
  int64_t kv_bytes(int64_t tokens) const;
  /// Union of config.json's, generation_config.json's and the tokenizer's EOS ids, sorted.
  const std::vector<int32_t>& eos_token_ids() const;

  engine::ModelImpl& impl() const { return *impl_; }
  const std::shared_ptr<engine::ModelImpl>& shared_impl() const { return impl_; }
  explicit Model(std::shared_ptr<engine::ModelImpl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<engine::ModelImpl> impl_;
};

struct Loaded {
  Model model;
  Tokenizer tokenizer;
};

/// Loads a model folder in MLX format: config.json, *.safetensors (memory-mapped, used in place), tokenizer files.
/// Where no folder of this name exists, ORG/NAME is a repository of the Hugging Face Hub: see snapshot_download.
/// Throws Error naming the file, the tensor or key, what was expected and what was got.
Loaded load(const std::string& path_or_repo, const LoadOptions& options = {});

}  // namespace mlxlm
