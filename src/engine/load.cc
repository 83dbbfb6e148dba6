// load(): a folder becomes a model and a tokenizer.
#include <algorithm>
#include <future>
#include <set>

#include "base/error.h"
#include "engine/model_impl.h"
#include "hub/names.h"
#include "io/files.h"
#include "io/model_folder.h"
#include "models/registry.h"

namespace mlxlm {
namespace {

using io::Json;

// eos_token_id of a config: absent, null, an id, or a list of ids.
void add_eos(const Json& config, const std::string& where, std::set<int32_t>& eos) {
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return;
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > 0x7fffffff) {
      throw_invalid("{}: \"eos_token_id\": expected a token id or a list of them, got {}", where, it->dump());
    }
    eos.insert(id.get<int32_t>());
  }
}

std::vector<int32_t> union_of_eos(const io::ModelFolder& folder, const Tokenizer& tokenizer) {
  std::set<int32_t> eos(tokenizer.eos_token_ids().begin(), tokenizer.eos_token_ids().end());
  add_eos(folder.config, folder.path + "/config.json", eos);
  add_eos(folder.generation_config, folder.path + "/generation_config.json", eos);
  return {eos.begin(), eos.end()};
}

ModelInfo describe(const io::ModelFolder& folder, const nn::Executor& executor, Precision precision) {
  const nn::ModelSpec& spec = executor.spec();
  const nn::Weights& weights = executor.weights();
  const nn::AttentionSpec& attention = spec.layers.front().attention;
  ModelInfo info;
  info.path = folder.path;
  info.model_type = spec.model_type;
  info.parameters = weights.parameters;
  info.weight_bytes = weights.bytes;
  info.bytes_per_token = weights.bytes_per_token;
  info.macs_per_token = weights.macs_per_token;
  info.bits_per_weight = 8.0 * static_cast<double>(weights.bytes) / static_cast<double>(weights.parameters);
  info.n_layers = static_cast<int64_t>(spec.layers.size());
  for (const auto& layer : spec.layers) info.windows.push_back(layer.attention.window);
  info.hidden_size = spec.hidden_size;
  info.n_heads = attention.n_heads;
  info.n_kv_heads = attention.n_kv_heads;
  info.head_dim = attention.head_dim;
  info.vocab_size = spec.vocab_size;
  info.max_context = spec.max_context;
  info.quantization = weights.quantization;
  info.kernels = executor.kernels().isa;
  info.threads = executor.threads();
  info.precision = precision;
  return info;
}

/// The folder itself, or the one that the Hub's repository of this name is downloaded to.
std::string folder_of(const std::string& path, const LoadOptions& options) {
  if (io::file_exists(path)) return path;
  if (!hub::is_repo_id(path)) {
    throw_error(ErrorKind::not_found,
                "{}: no such model folder, and not the name of a Hugging Face repository (ORG/NAME); expected a folder "
                "with config.json and *.safetensors",
                path);
  }
  HubOptions download;
  download.revision = options.revision;
  download.progress = options.download_progress;
  download.cancel = options.cancel;
  return snapshot_download(path, download);
}

}  // namespace

const ModelInfo& Model::info() const { return impl_->info(); }
int64_t Model::kv_bytes(int64_t tokens) const { return impl_->executor().kv_bytes(tokens); }
const std::vector<int32_t>& Model::eos_token_ids() const { return impl_->eos_token_ids(); }

Loaded load(const std::string& path_or_repo, const LoadOptions& options) {
  if (options.kv_bytes < 0) throw_invalid("kv_bytes: expected 0 (no limit) or more, got {}", options.kv_bytes);
  if (options.threads < 0) throw_invalid("threads: expected 0 (one per core) or more, got {}", options.threads);
  const std::string path = folder_of(path_or_repo, options);
  // The tokenizer's tables take as long to build as everything else together, so they are built beside it.
  auto tokenizer = std::async(std::launch::async, [&] { return Tokenizer::from_folder(path); });
  const auto folder = io::open_model_folder(path);
  const nn::ModelSpec spec = models::build_spec(*folder);
  auto executor = std::make_unique<nn::Executor>(spec, nn::bind_weights(folder, spec),
                                                 nn::ExecutorOptions{.exact = options.precision == Precision::exact,
                                                                     .threads = options.threads,
                                                                     .isa = options.isa,
                                                                     .kv_bytes = options.kv_bytes});
  ModelInfo info = describe(*folder, *executor, options.precision);
  Tokenizer ready = tokenizer.get();
  std::vector<int32_t> eos = union_of_eos(*folder, ready);
  return {Model(std::make_shared<engine::ModelImpl>(std::move(info), ready, std::move(eos), std::move(executor),
                                                    options.prefix_cache_bytes)),
          ready};
}

}  // namespace mlxlm
