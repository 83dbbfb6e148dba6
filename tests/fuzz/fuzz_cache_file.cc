// Any bytes as a prompt cache file: an Error, or a cache that the model can go on with, trim and save.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <vector>

#include "engine/prompt_cache_file.h"
#include "mlxlm/mlxlm.h"
#include "support/random_model.h"

namespace mlxlm {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// A layer with a window and a full one, so that every class of cache can occur.
const Model& model() {
  static const Model loaded = [] {
    io::Json config = test::tiny_config("gemma3_text");
    config.update({{"vocab_size", 256},
                   {"hidden_size", 32},
                   {"intermediate_size", 32},
                   {"num_attention_heads", 1},
                   {"num_key_value_heads", 1},
                   {"head_dim", 32},
                   {"num_hidden_layers", 2},
                   {"sliding_window", 4},
                   {"sliding_window_pattern", 2},
                   {"query_pre_attn_scalar", 32}});
    const std::string folder = test::write_random_model({.config = config});
    Model result = load(folder, {.precision = Precision::exact, .threads = 1}).model;
    std::filesystem::remove_all(folder);  // the mapped files live on
    return result;
  }();
  return loaded;
}

void go_on(PromptCache& cache) {
  PromptCache::State& state = cache.state();
  const int64_t length = cache.size();
  require(state.kv.length() == length && cache.can_trim(0));
  state.tokens.push_back(1);
  std::vector<float> logits;
  const nn::Span span{.sequence = &state.kv, .tokens = state.pending(), .rows = nn::Rows::last};
  state.model->executor().forward({&span, 1}, logits);
  require(logits.size() == 256 && state.kv.length() == length + 1);
  const int64_t trimmed = cache.can_trim(1) ? 1 : 0;
  require(cache.trim(1) == trimmed && cache.size() == length + 1 - trimmed);
  require(cache.trim(length + 1) == length + 1 - trimmed && cache.bytes() == 0);
}

int run(const uint8_t* data, size_t size) {
  const auto mapped = io::MappedFile::from_bytes("input", std::as_bytes(std::span(data, size)));
  try {
    const engine::CacheFile file = engine::read_cache_file(io::SafetensorsFile::parse(mapped));
    for (size_t i = 0; i < file.layers.size(); ++i) {
      try {
        for (const engine::RowRun& part : file.rows(i)) {
          require(part.row >= 0 && part.position >= 0 && part.count >= 0);
          require(part.row + part.count <= file.layers[i].keys[0].shape[2]);
          require(part.position + part.count <= file.layers[i].offset);
        }
      } catch (const Error&) {
        continue;
      }
    }
    LoadedPromptCache loaded = engine::make_prompt_cache(model(), file);
    go_on(loaded.cache);
  } catch (const Error&) {
    return 0;
  }
  return 0;
}

}  // namespace
}  // namespace mlxlm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return mlxlm::run(data, size); }
