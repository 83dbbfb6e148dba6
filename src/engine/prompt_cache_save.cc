// PromptCache::save: the keys and values of every layer as mlx-lm's cache objects.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/cache_file.h"
#include "engine/cache_file_identity.h"
#include "engine/cache_file_values.h"
#include "engine/prompt_cache.h"

namespace mlxlm {
namespace {

using engine::CacheLayer;
using engine::CacheRows;

// Tokens in one forward pass, and rows converted at a time: large enough to be efficient, small enough for memory.
constexpr int64_t kStep = 512;

// Computes what is still pending: mlx-lm, which does not know the ids, would miss it.
void complete(PromptCache::State& state) {
  std::vector<float> no_logits;
  for (auto pending = state.pending(); !pending.empty(); pending = state.pending()) {
    const auto n = std::min(pending.size(), static_cast<size_t>(kStep));
    const nn::Span span{.sequence = &state.kv, .tokens = pending.first(n), .rows = nn::Rows::none};
    state.model->executor().forward({&span, 1}, no_logits);
  }
}

/// One layer of a cache as rows of a file.
class LayerRows {
 public:
  LayerRows(const nn::KvSequence& kv, const nn::ModelSpec& spec, int layer)
      : kv_(kv), layer_(layer), layout_(kv.layout(layer)), length_(kv.length()) {
    const int64_t window = spec.layers[static_cast<size_t>(layer)].attention.window;
    max_size_ = window > 0 ? window : kv.options().max_size;
    keep_ = window > 0 || max_size_ == 0 ? 0 : kv.options().keep;
    rows_ = max_size_ > 0 ? std::min(length_, max_size_) : length_;
    // Rows lie in the order of time. A full ring has one for the position that the next query no longer reads, which
    // may be gone: zeros then.
    const int64_t kept = std::min(keep_, rows_);
    if (kept > 0) pieces_.push_back({.position = 0, .row = 0, .count = kept});
    const int64_t from = std::max({kept, length_ - (rows_ - kept), kv.held_from(layer)});
    if (from < length_) pieces_.push_back({.position = from, .row = from - (length_ - rows_), .count = length_ - from});
  }

  CacheLayer describe() const {
    CacheLayer layer;
    const bool quantized = kv_.quantized();
    if (max_size_ > 0) {
      layer.kind = quantized ? engine::CacheClass::quantized_rotating : engine::CacheClass::rotating;
    } else {
      layer.kind = quantized ? engine::CacheClass::quantized : engine::CacheClass::plain;
    }
    layer.offset = length_;
    layer.keep = keep_;
    layer.max_size = max_size_;
    layer.index = rows_;  // the ring begins again behind its last row
    layer.group_size = layout_.group_size;
    layer.bits = layout_.bits;
    if (rows_ == 0) return layer;
    layer.keys = tensors(layout_.head_dim);
    layer.values = tensors(layout_.value_dim);
    return layer;
  }

  CacheRows read() const {
    CacheRows out;
    for (const io::TensorView& tensor : tensors(layout_.head_dim)) out.keys.emplace_back(tensor.bytes);
    for (const io::TensorView& tensor : tensors(layout_.value_dim)) out.values.emplace_back(tensor.bytes);
    for (const engine::RowRun& piece : pieces_) {
      for (int64_t done = 0; done < piece.count; done += kStep) {
        const int64_t n = std::min(kStep, piece.count - done);
        const engine::RowRun run{piece.position + done, piece.row + done, n};
        kv_.quantized() ? read_codes(run, out) : read_floats(run, out);
      }
    }
    return out;
  }

 private:
  std::vector<io::TensorView> tensors(int64_t dim) const {
    const auto view = [&](DType dtype, int64_t width) {
      const std::vector<int64_t> shape = {1, layout_.n_kv_heads, rows_, width};
      const int64_t bytes = layout_.n_kv_heads * rows_ * width * static_cast<int64_t>(dtype_size(dtype));
      return io::TensorView{{}, dtype, shape, nullptr, static_cast<size_t>(bytes)};
    };
    if (!kv_.quantized()) return {view(layout_.dtype, dim)};
    const int64_t groups = dim / layout_.group_size;
    return {view(DType::u32, dim * layout_.bits / 32), view(layout_.dtype, groups), view(layout_.dtype, groups)};
  }

  // Places rows [n_kv_heads, run.count, row_bytes] into a tensor [n_kv_heads, rows, row_bytes].
  void place(const engine::RowRun& run, const std::byte* from, size_t bytes, std::vector<std::byte>& to) const {
    const auto heads = static_cast<size_t>(layout_.n_kv_heads);
    const size_t head = bytes / heads;
    const size_t row_bytes = head / static_cast<size_t>(run.count);
    for (size_t h = 0; h < heads; ++h) {
      const size_t row = h * static_cast<size_t>(rows_) + static_cast<size_t>(run.row);
      std::memcpy(to.data() + row * row_bytes, from + h * head, head);
    }
  }

  void read_floats(const engine::RowRun& run, CacheRows& out) const {
    const int64_t heads = layout_.n_kv_heads;
    std::vector<float> k(static_cast<size_t>(heads * run.count * layout_.head_dim));
    std::vector<float> v(static_cast<size_t>(heads * run.count * layout_.value_dim));
    kv_.read_layer(layer_, run.position, run.count, k.data(), v.data());
    std::vector<std::byte> bytes;
    for (auto [values, tensor] : {std::pair(&k, &out.keys[0]), std::pair(&v, &out.values[0])}) {
      bytes.resize(values->size() * dtype_size(layout_.dtype));
      engine::narrow(layout_.dtype, values->data(), static_cast<int64_t>(values->size()), bytes.data());
      place(run, bytes.data(), bytes.size(), *tensor);
    }
  }

  void read_codes(const engine::RowRun& run, CacheRows& out) const {
    nn::KvCodes k, v;
    kv_.read_codes(layer_, run.position, run.count, k, v);
    for (auto [codes, tensors] : {std::pair(&k, &out.keys), std::pair(&v, &out.values)}) {
      const auto words = std::as_bytes(std::span(codes->codes));
      place(run, words.data(), words.size(), (*tensors)[0]);
      place(run, codes->scales.data(), codes->scales.size(), (*tensors)[1]);
      place(run, codes->biases.data(), codes->biases.size(), (*tensors)[2]);
    }
  }

  const nn::KvSequence& kv_;
  int layer_;
  KvLayout layout_;
  int64_t length_;
  int64_t max_size_ = 0;  // 0: no ring
  int64_t keep_ = 0;
  int64_t rows_ = 0;  // of the file
  std::vector<engine::RowRun> pieces_;
};

}  // namespace

void PromptCache::save(const std::string& path, const std::map<std::string, std::string>& metadata) const {
  State& state = *state_;
  if (state.in_use) throw_invalid("PromptCache::save: a generation is using this cache; finish or destroy it first");
  engine::check_user_metadata(metadata);
  complete(state);

  const nn::Executor& executor = state.model->executor();
  std::vector<LayerRows> layers;
  std::vector<CacheLayer> described;
  for (size_t i = 0; i < executor.spec().layers.size(); ++i) {
    layers.emplace_back(state.kv, executor.spec(), static_cast<int>(i));
    described.push_back(layers.back().describe());
  }
  std::map<std::string, std::string> all = metadata;
  engine::add_identity({.model = engine::model_fingerprint(executor),
                        .precision = executor.exact() ? "exact" : "fast",
                        .options = state.options,
                        .start = state.start,
                        .tokens = state.tokens},
                       all);
  engine::write_cache_file(path, described, all, [&](size_t i) { return layers[i].read(); });
}

}  // namespace mlxlm
