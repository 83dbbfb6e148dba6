// load_prompt_cache: a file of ours or of mlx-lm's becomes the keys and values of a sequence.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engine/cache_file_identity.h"
#include "engine/cache_file_values.h"
#include "engine/prompt_cache_file.h"

namespace mlxlm {
namespace engine {
namespace {

// Positions beyond are not distinct in the float32 that rope computes with.
constexpr int64_t kMostPositions = int64_t{1} << 24;
// Rows converted at a time.
constexpr int64_t kRowsAtATime = 512;

/// Fits the layers of a file to a model.
class Loader {
 public:
  Loader(const Model& model, const CacheFile& file)
      : model_(model), executor_(model.impl().executor()), file_(file), path_(file.file.path()) {}

  PromptCache load(std::map<std::string, std::string>& metadata) {
    ours_ = take_identity(path_, metadata, identity_);
    const size_t expected = executor_.spec().layers.size();
    if (file_.layers.size() != expected) {
      throw_invalid("{}: expected the {} layers of {}, got {}", path_, expected, model_.info().model_type,
                    file_.layers.size());
    }
    length_ = file_.layers[0].offset;
    quantized_ = is_quantized(file_.layers[0].kind);
    if (length_ > kMostPositions) {
      throw_invalid("{}: layer 0: offset: expected at most {} positions, got {}", path_, kMostPositions, length_);
    }
    if (ours_) check_identity();
    PromptCache cache = make_empty();
    PromptCache::State& state = cache.state();
    std::vector<std::vector<RowRun>> rows;
    std::vector<int64_t> held_from;
    for (size_t i = 0; i < expected; ++i) {
      check_layer(i, state.kv.options());
      rows.push_back(file_.rows(i));
      held_from.push_back(first_row(i, rows.back(), state.kv.options()));
    }
    if (length_ > 0) {
      state.kv.import_positions(length_, held_from, quantized_);
      for (size_t i = 0; i < expected; ++i) fill(i, rows[i], held_from[i], state.kv);
    }
    state.start = ours_ ? identity_.start : length_;
    state.tokens = std::move(identity_.tokens);
    return cache;
  }

 private:
  const nn::AttentionSpec& spec(size_t i) const { return executor_.spec().layers[i].attention; }
  // The window of a layer with its kept start, 0 for none.
  static int64_t window(const nn::AttentionSpec& spec, const nn::KvOptions& options) {
    if (spec.window > 0) return spec.window;
    return options.max_size > 0 ? options.max_size - options.keep : 0;
  }
  static int64_t keep(const nn::AttentionSpec& spec, const nn::KvOptions& options) {
    return spec.window > 0 || options.max_size == 0 ? 0 : options.keep;
  }

  void check_identity() const {
    const std::string model = model_fingerprint(executor_);
    if (identity_.model != model) {
      throw_invalid("{}: it belongs to another model: expected fingerprint {} ({}), got {}", path_, model,
                    model_.info().path, identity_.model);
    }
    const char* precision = executor_.exact() ? "exact" : "fast";
    if (identity_.precision != precision) {
      throw_invalid("{}: expected precision {}, got {}; load the model with that precision", path_, precision,
                    identity_.precision);
    }
    const auto known = static_cast<int64_t>(identity_.tokens.size());
    if (identity_.start < 0 || identity_.start > length_ || known != length_ - identity_.start) {
      throw_invalid("{}: expected ids of the positions {} to {}, got {}", path_, identity_.start, length_, known);
    }
    for (const int32_t id : identity_.tokens) {
      if (id >= executor_.spec().vocab_size) {
        throw_invalid("{}: token id {} is outside the model's vocabulary of {}", path_, id,
                      executor_.spec().vocab_size);
      }
    }
    const int64_t quantized_from = std::max<int64_t>(1, identity_.options.quantized_kv_start);
    const bool may_be_quantized = identity_.options.kv_bits != 0 && length_ >= quantized_from;
    const bool may_be_float = identity_.options.kv_bits == 0 || length_ <= quantized_from;
    if (!(quantized_ ? may_be_quantized : may_be_float)) {
      throw_invalid("{}: layer 0: expected {} rows, as its options say for {} positions, got a {}", path_,
                    quantized_ ? "float" : "quantised", length_, cache_class_name(file_.layers[0].kind));
    }
  }

  PromptCache make_empty() const {
    try {
      return PromptCache(model_, options());
    } catch (const Error& error) {
      throw_error(error.kind(), "{}: {}", path_, error.what());
    }
  }

  // What the classes of the layers say; the layers must agree with it, which check_layer looks after.
  PromptCacheOptions options() const {
    if (ours_) return identity_.options;
    PromptCacheOptions options;
    const CacheLayer& first = file_.layers[0];
    if (quantized_) {
      options.kv_bits = static_cast<int>(first.bits);
      options.kv_group_size = static_cast<int>(first.group_size);
    }
    for (size_t i = 0; i < file_.layers.size(); ++i) {
      if (spec(i).window > 0 || !is_rotating(file_.layers[i].kind)) continue;
      options.max_kv_size = file_.layers[i].max_size;
      options.keep = file_.layers[i].keep;
      break;
    }
    return options;
  }

  void check_layer(size_t i, const nn::KvOptions& options) const {
    const CacheLayer& layer = file_.layers[i];
    const auto expect = [&](const char* what, int64_t expected, int64_t got) {
      if (expected != got) throw_invalid("{}: layer {}: {}: expected {}, got {}", path_, i, what, expected, got);
    };
    const int64_t window = spec(i).window;
    const bool ring = is_rotating(layer.kind);
    // A layer with a window of its own may come without a ring: it has more than it needs.
    if (is_quantized(layer.kind) != quantized_ || (window == 0 && ring != (options.max_size > 0))) {
      const CacheClass plain = quantized_ ? CacheClass::quantized : CacheClass::plain;
      const CacheClass rotating = quantized_ ? CacheClass::quantized_rotating : CacheClass::rotating;
      throw_invalid("{}: layer {}: expected a cache of class {}, as the layers before it, got {}", path_, i,
                    cache_class_name(window > 0 || options.max_size > 0 ? rotating : plain),
                    cache_class_name(layer.kind));
    }
    expect("offset", length_, layer.offset);
    if (ring) {
      expect("max_size", window > 0 ? window : options.max_size, layer.max_size);
      expect("keep", keep(spec(i), options), layer.keep);
    }
    if (quantized_) {
      expect("bits", options.bits, layer.bits);
      expect("group_size", options.group_size, layer.group_size);
    }
    if (layer.keys.empty()) return;
    for (const auto* part : {&layer.keys, &layer.values}) check_shapes(i, *part);
  }

  void check_shapes(size_t i, const std::vector<io::TensorView>& tensors) const {
    const CacheLayer& layer = file_.layers[i];
    for (size_t j = 0; j < tensors.size(); ++j) {
      int64_t width = spec(i).head_dim;
      if (quantized_) width = j == 0 ? width * layer.bits / 32 : width / layer.group_size;
      const std::vector<int64_t> expected = {1, spec(i).n_kv_heads, tensors[j].shape[2], width};
      const bool codes = quantized_ && j == 0;
      const bool right_type = codes ? tensors[j].dtype == DType::u32 : is_weight_float(tensors[j].dtype);
      if (tensors[j].shape != expected || !right_type) {
        throw_invalid("{}: tensor '{}': expected {} of {}, got {} of {}", path_, tensors[j].name,
                      io::shape_text(expected), codes ? "U32" : "F32, F16 or BF16", io::shape_text(tensors[j].shape),
                      dtype_name(tensors[j].dtype));
      }
    }
  }

  // Where the rows to be held at the end begin: those the next query reads, and a block before them to roll back to
  // where the file has it.
  int64_t first_row(size_t i, const std::vector<RowRun>& rows, const nn::KvOptions& options) const {
    if (length_ == 0) return 0;
    int64_t available = length_;
    for (auto run = rows.rbegin(); run != rows.rend() && run->position + run->count == available; ++run) {
      available = run->position;
    }
    const int64_t w = window(spec(i), options);
    const int64_t needed = w == 0 ? 0 : std::max<int64_t>(0, length_ - w + 1);
    const int64_t kept = std::min(keep(spec(i), options), length_);
    const bool has_start = kept == 0 || (!rows.empty() && rows[0].position == 0 && rows[0].count >= kept);
    if (available > std::max(needed, kept) || !has_start) {
      throw_invalid("{}: layer {}: expected the positions below {} and those from {} on, got those from {} on", path_,
                    i, kept, needed, available);
    }
    return std::max(available, needed - kKvBlockTokens);
  }

  void fill(size_t i, const std::vector<RowRun>& rows, int64_t held_from, nn::KvSequence& kv) const {
    const int64_t kept = keep(spec(i), kv.options());
    for (const RowRun& run : rows) {
      const int64_t end = run.position + run.count;
      for (int64_t first = run.position; first < end;) {
        // Rows between the kept start and held_from are not wanted.
        if (first >= kept && first < held_from) {
          first = held_from;
          continue;
        }
        const int64_t stop = std::min(end, first < kept && kept < held_from ? kept : end);
        const RowRun part{first, run.row + (first - run.position), std::min(kRowsAtATime, stop - first)};
        quantized_ ? write_codes(i, part, kv) : write_floats(i, part, kv);
        first += part.count;
      }
    }
  }

  // Rows of a float tensor, [n_kv_heads, part.count, width].
  std::vector<float> floats(const io::TensorView& tensor, const RowRun& part) const {
    const int64_t heads = tensor.shape[1], rows = tensor.shape[2], width = tensor.shape[3];
    std::vector<float> out(static_cast<size_t>(heads * part.count * width));
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t first = (h * rows + part.row) * width;
      widen(tensor.dtype, tensor.data + first * static_cast<int64_t>(dtype_size(tensor.dtype)), part.count * width,
            out.data() + h * part.count * width);
    }
    return out;
  }

  // The same as values of the model's type.
  std::vector<std::byte> converted(const io::TensorView& tensor, const std::vector<float>& values, DType dtype) const {
    std::vector<std::byte> out(values.size() * dtype_size(dtype));
    const auto n = static_cast<int64_t>(values.size());
    const int64_t changed = narrow(dtype, values.data(), n, out.data());
    if (changed < n) {
      throw_invalid(
          "{}: tensor '{}': expected {}, this model's type of keys and values, got {} with {}, which {} cannot "
          "hold; load the model with the precision that wrote the file",
          path_, tensor.name, dtype_name(dtype), dtype_name(tensor.dtype), values[static_cast<size_t>(changed)],
          dtype_name(dtype));
    }
    return out;
  }

  void write_floats(size_t i, const RowRun& part, nn::KvSequence& kv) const {
    const CacheLayer& layer = file_.layers[i];
    const DType dtype = kv.layout(static_cast<int>(i)).dtype;
    const auto read = [&](const io::TensorView& tensor) {
      std::vector<float> values = floats(tensor, part);
      if (dtype != tensor.dtype) converted(tensor, values, dtype);  // throws where a value does not fit
      return values;
    };
    const std::vector<float> k = read(layer.keys[0]);
    const std::vector<float> v = read(layer.values[0]);
    kv.write_layer(static_cast<int>(i), part.position, part.count, k.data(), v.data());
  }

  void write_codes(size_t i, const RowRun& part, nn::KvSequence& kv) const {
    const DType dtype = kv.layout(static_cast<int>(i)).dtype;
    const auto read = [&](const std::vector<io::TensorView>& tensors) {
      nn::KvCodes out;
      const int64_t heads = tensors[0].shape[1], rows = tensors[0].shape[2], width = tensors[0].shape[3];
      out.codes.resize(static_cast<size_t>(heads * part.count * width));
      for (int64_t h = 0; h < heads; ++h) {
        std::memcpy(out.codes.data() + h * part.count * width, tensors[0].data + 4 * (h * rows + part.row) * width,
                    static_cast<size_t>(4 * part.count * width));
      }
      out.scales = converted(tensors[1], floats(tensors[1], part), dtype);
      out.biases = converted(tensors[2], floats(tensors[2], part), dtype);
      return out;
    };
    const CacheLayer& layer = file_.layers[i];
    kv.write_codes(static_cast<int>(i), part.position, part.count, read(layer.keys), read(layer.values));
  }

  const Model& model_;
  const nn::Executor& executor_;
  const CacheFile& file_;
  const std::string& path_;
  bool ours_ = false;
  CacheIdentity identity_;  // of a file of ours
  int64_t length_ = 0;
  bool quantized_ = false;
};

}  // namespace

LoadedPromptCache make_prompt_cache(const Model& model, CacheFile file) {
  std::map<std::string, std::string> metadata = std::move(file.metadata);
  PromptCache cache = Loader(model, file).load(metadata);
  return {std::move(cache), std::move(metadata)};
}

}  // namespace engine

LoadedPromptCache load_prompt_cache(const Model& model, const std::string& path) {
  return engine::make_prompt_cache(model, engine::read_cache_file(io::SafetensorsFile::open(path)));
}

std::map<std::string, std::string> read_prompt_cache_metadata(const std::string& path) {
  engine::CacheFile file = engine::read_cache_file(io::SafetensorsFile::open(path));
  engine::CacheIdentity ours;
  engine::take_identity(path, file.metadata, ours);
  return std::move(file.metadata);
}

}  // namespace mlxlm
