// Rows of a sequence's keys and values, for saving and loading.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "nn/kv_cache.h"

namespace mlxlm::nn {
namespace {

using BlockId = KvPool::BlockId;

// Every set of kernels gives the same bits.
const Kernels& kernels() { return *available_kernels().front(); }

// From [n_kv_heads, n, dim] to one token's [n_kv_heads, dim] and back.
void gather(const float* rows, int64_t heads, int64_t n, int64_t dim, int64_t token, float* out) {
  for (int64_t h = 0; h < heads; ++h) std::copy_n(rows + (h * n + token) * dim, dim, out + h * dim);
}
void scatter(const float* in, int64_t heads, int64_t n, int64_t dim, int64_t token, float* rows) {
  for (int64_t h = 0; h < heads; ++h) std::copy_n(in + h * dim, dim, rows + (h * n + token) * dim);
}

/// One token's pieces of a KvCodes and the places they have in a block.
struct CodeRow {
  std::byte* block_codes;  // byte i at block_codes + i · byte_stride
  int64_t byte_stride;
  std::byte* block_scales;  // scale g at block_scales + g · scale_stride
  std::byte* block_biases;
  int64_t scale_stride;
  int64_t bytes, scale_bytes;  // of a row of codes, and of scales
  int64_t scale_size;          // bytes of one scale
  size_t row;                  // index into the rows of KvCodes
};

void resize(KvCodes& codes, const KvLayout& layout, int64_t dim, int64_t n) {
  const auto rows = static_cast<size_t>(layout.n_kv_heads * n);
  const size_t scales = static_cast<size_t>(dim / layout.group_size) * dtype_size(layout.dtype);
  codes.codes.resize(rows * static_cast<size_t>(dim * layout.bits / 32));
  codes.scales.resize(rows * scales);
  codes.biases.resize(rows * scales);
}

void check_size(const char* what, const KvCodes& codes, const KvLayout& layout, int64_t dim, int64_t n) {
  KvCodes expected;
  resize(expected, layout, dim, n);
  if (codes.codes.size() == expected.codes.size() && codes.scales.size() == expected.scales.size() &&
      codes.biases.size() == expected.biases.size()) {
    return;
  }
  throw_invalid("write_codes: expected {} words, {} and {} bytes of codes, scales and biases of {}, got {}, {} and {}",
                expected.codes.size(), expected.scales.size(), expected.biases.size(), what, codes.codes.size(),
                codes.scales.size(), codes.biases.size());
}

void copy_out(const CodeRow& row, KvCodes& codes) {
  auto* bytes = reinterpret_cast<std::byte*>(codes.codes.data()) + row.row * static_cast<size_t>(row.bytes);
  for (int64_t i = 0; i < row.bytes; ++i) bytes[i] = row.block_codes[i * row.byte_stride];
  const size_t first = row.row * static_cast<size_t>(row.scale_bytes);
  for (int64_t i = 0, g = 0; i < row.scale_bytes; i += row.scale_size, ++g) {
    const int64_t from = g * row.scale_stride;
    std::memcpy(codes.scales.data() + first + i, row.block_scales + from, static_cast<size_t>(row.scale_size));
    std::memcpy(codes.biases.data() + first + i, row.block_biases + from, static_cast<size_t>(row.scale_size));
  }
}

void copy_in(const CodeRow& row, const KvCodes& codes) {
  const auto* bytes = reinterpret_cast<const std::byte*>(codes.codes.data()) + row.row * static_cast<size_t>(row.bytes);
  for (int64_t i = 0; i < row.bytes; ++i) row.block_codes[i * row.byte_stride] = bytes[i];
  const size_t first = row.row * static_cast<size_t>(row.scale_bytes);
  for (int64_t i = 0, g = 0; i < row.scale_bytes; i += row.scale_size, ++g) {
    const int64_t to = g * row.scale_stride;
    std::memcpy(row.block_scales + to, codes.scales.data() + first + i, static_cast<size_t>(row.scale_size));
    std::memcpy(row.block_biases + to, codes.biases.data() + first + i, static_cast<size_t>(row.scale_size));
  }
}

}  // namespace

KvSequence::LayerPlace KvSequence::place_of(int layer) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& layers = pool_->groups()[g].layers;
    const auto it = std::lower_bound(layers.begin(), layers.end(), layer);
    if (it != layers.end() && *it == layer) return {g, it - layers.begin()};
  }
  throw_invalid("keys and values: the model has no layer {}", layer);
}

KvLayout KvSequence::layout(int layer) const { return layout_of_group(place_of(layer).group, quantized_); }

int64_t KvSequence::held_from(int layer) const { return groups_[place_of(layer).group].held_from; }

void KvSequence::check_rows(const char* what, int layer, int64_t first, int64_t n) const {
  const size_t g = place_of(layer).group;
  const int64_t kept = std::min(keep(g), length_), from = std::min(groups_[g].held_from, length_);
  const bool inside = first >= 0 && n >= 0 && first + n <= length_;
  if (inside && (first >= from || first + n <= kept || kept >= from)) return;
  throw_invalid("{}: layer {} holds positions [0, {}) and [{}, {}), not [{}, {})", what, layer, kept, from, length_,
                first, first + n);
}

void KvSequence::read_layer(int layer, int64_t first, int64_t n, float* k, float* v) const {
  check_rows("read_layer", layer, first, n);
  const LayerPlace place = place_of(layer);
  const KvLayout layout = layout_of_group(place.group, quantized_);
  std::vector<float> key(static_cast<size_t>(layout.n_kv_heads * layout.head_dim));
  std::vector<float> value(static_cast<size_t>(layout.n_kv_heads * layout.value_dim));
  for (int64_t i = 0; i < n; ++i) {
    const BlockId block = blocks(place.group)[static_cast<size_t>((first + i) / kKvBlockTokens)];
    kernels().kv_load(layout, block + place.index * layout.layer_bytes(), (first + i) % kKvBlockTokens, key.data(),
                      value.data());
    scatter(key.data(), layout.n_kv_heads, n, layout.head_dim, i, k);
    scatter(value.data(), layout.n_kv_heads, n, layout.value_dim, i, v);
  }
}

void KvSequence::write_layer(int layer, int64_t first, int64_t n, const float* k, const float* v) {
  check_rows("write_layer", layer, first, n);
  if (quantized_) throw_invalid("write_layer: the sequence holds codes; use write_codes");
  const LayerPlace place = place_of(layer);
  const KvLayout layout = layout_of_group(place.group, false);
  std::vector<float> key(static_cast<size_t>(layout.n_kv_heads * layout.head_dim));
  std::vector<float> value(static_cast<size_t>(layout.n_kv_heads * layout.value_dim));
  for (int64_t i = 0; i < n; ++i) {
    const BlockId block = blocks(place.group)[static_cast<size_t>((first + i) / kKvBlockTokens)];
    gather(k, layout.n_kv_heads, n, layout.head_dim, i, key.data());
    gather(v, layout.n_kv_heads, n, layout.value_dim, i, value.data());
    kernels().kv_store(layout, block + place.index * layout.layer_bytes(), (first + i) % kKvBlockTokens, key.data(),
                       value.data());
  }
}

/// Calls visit(row of keys, row of values) for every head of every position.
template <typename Visit>
void KvSequence::each_code_row(int layer, int64_t first, int64_t n, Visit visit) const {
  const LayerPlace place = place_of(layer);
  const KvLayout layout = layout_of_group(place.group, true);
  const auto size = static_cast<int64_t>(dtype_size(layout.dtype));
  const int64_t key_groups = layout.head_dim / layout.group_size, value_groups = layout.value_dim / layout.group_size;
  const int64_t key_bytes = layout.head_dim * layout.bits / 8, value_bytes = layout.value_dim * layout.bits / 8;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t slot = (first + i) % kKvBlockTokens;
    std::byte* keys =
        blocks(place.group)[static_cast<size_t>((first + i) / kKvBlockTokens)] + place.index * layout.layer_bytes();
    for (int64_t h = 0; h < layout.n_kv_heads; ++h, keys += layout.head_bytes()) {
      std::byte* values = keys + layout.key_bytes();
      std::byte* key_scales = keys + layout.code_bytes(layout.head_dim) + slot * size;
      std::byte* value_scales = values + layout.code_bytes(layout.value_dim) + slot * value_groups * size;
      const auto row = static_cast<size_t>(h * n + i);
      visit(CodeRow{keys + slot, kKvBlockTokens, key_scales, key_scales + layout.scale_bytes(layout.head_dim),
                    kKvBlockTokens * size, key_bytes, key_groups * size, size, row},
            CodeRow{values + slot * value_bytes, 1, value_scales, value_scales + layout.scale_bytes(layout.value_dim),
                    size, value_bytes, value_groups * size, size, row});
    }
  }
}

void KvSequence::read_codes(int layer, int64_t first, int64_t n, KvCodes& k, KvCodes& v) const {
  check_rows("read_codes", layer, first, n);
  if (!quantized_) throw_invalid("read_codes: the sequence holds floats; use read_layer");
  const KvLayout layout = this->layout(layer);
  resize(k, layout, layout.head_dim, n);
  resize(v, layout, layout.value_dim, n);
  each_code_row(layer, first, n, [&](const CodeRow& key, const CodeRow& value) {
    copy_out(key, k);
    copy_out(value, v);
  });
}

void KvSequence::write_codes(int layer, int64_t first, int64_t n, const KvCodes& k, const KvCodes& v) {
  check_rows("write_codes", layer, first, n);
  if (!quantized_) throw_invalid("write_codes: the sequence holds floats; use write_layer");
  const KvLayout layout = this->layout(layer);
  check_size("keys", k, layout, layout.head_dim, n);
  check_size("values", v, layout, layout.value_dim, n);
  each_code_row(layer, first, n, [&](const CodeRow& key, const CodeRow& value) {
    copy_in(key, k);
    copy_in(value, v);
  });
}

void KvSequence::import_positions(int64_t length, std::span<const int64_t> held_from, bool quantized) {
  if (length_ != 0) throw_invalid("import_positions: expected an empty sequence, got one of {} positions", length_);
  if (quantized && length < quantized_from()) {
    throw_invalid(
        "import_positions: expected floats, because queries read codes from position {} on only, got codes of {}",
        quantized_from(), length);
  }
  try {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int64_t needed = std::min(length, first_needed(g, length));
      int64_t from = 0;
      for (const int layer : pool_->groups()[g].layers) {
        const int64_t layer_from = held_from[static_cast<size_t>(layer)];
        if (layer_from > std::max(needed, keep(g))) {
          throw_invalid("layer {}: expected keys and values from position {} on, got them from {}", layer, needed,
                        layer_from);
        }
        from = std::max(from, layer_from);
      }
      groups_[g].held_from = from <= keep(g) ? 0 : from;
      const int64_t kept = (keep(g) + kKvBlockTokens - 1) / kKvBlockTokens;
      for (int64_t b = 0; b * kKvBlockTokens < length; ++b) {
        const bool held = b < kept || (b + 1) * kKvBlockTokens > groups_[g].held_from;
        groups_[g].blocks.push_back(held ? allocate(g, quantized) : kNone);
      }
    }
  } catch (...) {
    clear();
    throw;
  }
  length_ = length;
  quantized_ = quantized;
}

}  // namespace mlxlm::nn
