// Prompt cache files in mlx-lm's format: safetensors with one cache object per layer.
//
// Tensors are called by layer and place in the object's state ("<layer>.0" keys, "<layer>.1" values, with ".0", ".1",
// ".2" behind them where a row is codes, scales and biases). String metadata has three lists: "0.<key>" what the user
// gave, "1.<layer>" the class of the layer's object, "2.<i>.0" and "2.<i>.1" the names of tensors that stand for plain
// Python values, and which kind. Earlier versions of mlx-lm kept the numbers of the state as text, "0.<layer>.<i>",
// with the user's metadata under "1." and the classes under "2."; such files are read too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace mlxlm::engine {

/// The class of a layer's cache object.
enum class CacheClass : uint8_t {
  plain,               ///< KVCache: every position
  rotating,            ///< RotatingKVCache: the first `keep` positions and the newest ones, in a ring
  quantized,           ///< QuantizedKVCache: every position, as codes with scales and biases
  quantized_rotating,  ///< QuantizedRotatingKVCache: ours; mlx-lm has none
};

/// The name that stands in the file.
const char* cache_class_name(CacheClass kind);
constexpr bool is_rotating(CacheClass kind) {
  return kind == CacheClass::rotating || kind == CacheClass::quantized_rotating;
}
constexpr bool is_quantized(CacheClass kind) {
  return kind == CacheClass::quantized || kind == CacheClass::quantized_rotating;
}

/// Rows [row, row + count) of the tensors are the positions [position, position + count).
struct RowRun {
  int64_t position = 0;
  int64_t row = 0;
  int64_t count = 0;

  bool operator==(const RowRun&) const = default;
};

/// One layer's cache object. Rows are [1, n_kv_heads, rows, width].
struct CacheLayer {
  CacheClass kind = CacheClass::plain;
  int64_t offset = 0;      ///< positions seen, also those that a ring has overwritten
  int64_t keep = 0;        ///< rotating: the first positions, never overwritten
  int64_t max_size = 0;    ///< rotating: positions of a full ring
  int64_t index = 0;       ///< rotating: the row that is written next, or the number of rows
  int64_t group_size = 0;  ///< quantised: values with a common scale
  int64_t bits = 0;        ///< quantised: of a code
  /// Empty before the first token; else one tensor of floats, or codes (u32), scales and biases.
  std::vector<io::TensorView> keys, values;
};

/// A file whose layers are consistent in themselves; whether they fit a model is the reader's to check.
struct CacheFile {
  io::SafetensorsFile file;  // keeps the views alive
  std::vector<CacheLayer> layers;
  std::map<std::string, std::string> metadata;  ///< the user's

  /// The rows of a layer that hold positions, in ascending order. Throws Error where the object's numbers contradict
  /// each other.
  std::vector<RowRun> rows(size_t index) const;
};

/// Throws Error naming the file and the layer for a class or a value that is not known or does not fit the others.
CacheFile read_cache_file(io::SafetensorsFile file);

/// Data of a layer's tensors, in the order of CacheLayer's.
struct CacheRows {
  std::vector<std::vector<std::byte>> keys, values;
};

/// Writes layers of the given shapes (the data pointers of their views are ignored); `rows` gives the data of one layer
/// at a time. The file appears under its name only when it is complete.
void write_cache_file(const std::string& path, std::span<const CacheLayer> layers,
                      const std::map<std::string, std::string>& metadata,
                      const std::function<CacheRows(size_t layer)>& rows);

}  // namespace mlxlm::engine
