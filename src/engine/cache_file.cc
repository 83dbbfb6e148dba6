#include "engine/cache_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "io/safetensors_writer.h"

namespace mlxlm::engine {
namespace {

using Metadata = std::map<std::string, std::string>;

struct ClassName {
  CacheClass kind;
  const char* name;
};
constexpr std::array<ClassName, 4> kClasses = {{{CacheClass::plain, "KVCache"},
                                                {CacheClass::rotating, "RotatingKVCache"},
                                                {CacheClass::quantized, "QuantizedKVCache"},
                                                {CacheClass::quantized_rotating, "QuantizedRotatingKVCache"}}};

// Numbers of a layer's state, in the order of mlx-lm's objects.
using Field = int64_t CacheLayer::*;
std::vector<Field> state_fields(CacheClass kind) {
  switch (kind) {
    case CacheClass::plain:
      return {&CacheLayer::offset};
    case CacheClass::rotating:
      return {&CacheLayer::offset, &CacheLayer::keep, &CacheLayer::max_size, &CacheLayer::index};
    case CacheClass::quantized:
      return {&CacheLayer::offset, &CacheLayer::group_size, &CacheLayer::bits};
    case CacheClass::quantized_rotating:
      return {&CacheLayer::offset, &CacheLayer::keep,       &CacheLayer::max_size,
              &CacheLayer::index,  &CacheLayer::group_size, &CacheLayer::bits};
  }
  return {};
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

int64_t load_integer(const io::TensorView& tensor) {
  uint64_t bits = 0;
  for (size_t i = 0; i < tensor.bytes; ++i) bits |= std::to_integer<uint64_t>(tensor.data[i]) << (8 * i);
  const auto unused = static_cast<int>(64 - 8 * tensor.bytes);
  const bool is_signed = tensor.dtype == DType::i8 || tensor.dtype == DType::i16 || tensor.dtype == DType::i32 ||
                         tensor.dtype == DType::i64;
  return is_signed ? static_cast<int64_t>(bits << unused) >> unused : static_cast<int64_t>(bits);
}

bool is_integer(DType dtype) { return !is_weight_float(dtype) && dtype != DType::f64 && dtype != DType::boolean; }

/// Reads the objects of one file and checks that nothing is left over.
class FileReader {
 public:
  explicit FileReader(const io::SafetensorsFile& file) : file_(file), path_(file.path()) {
    for (const io::TensorView& tensor : file.tensors()) tensors_.emplace(tensor.name, &tensor);
    const auto first = file.metadata().find("2.0");
    if (first == file.metadata().end()) {
      throw_invalid("{}: not a prompt cache file: its metadata has no entry '2.0'", path_);
    }
    earlier_format_ = !first->second.empty();
    split_metadata();
  }

  std::vector<CacheLayer> layers() {
    std::vector<CacheLayer> layers(classes_.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      read_layer(i, layers[i]);
      check_layer(i, layers[i]);
    }
    if (!tensors_.empty()) throw_invalid("{}: tensor '{}' belongs to no layer", path_, tensors_.begin()->first);
    if (!numbers_.empty()) throw_invalid("{}: metadata entry '0.{}' is not known", path_, numbers_.begin()->first);
    if (!kinds_.empty()) throw_invalid("{}: there is no tensor for the value '{}'", path_, kinds_.begin()->first);
    return layers;
  }
  Metadata user_metadata() { return std::move(user_); }

 private:
  void split_metadata() {
    Metadata classes;
    Metadata scalars;
    Metadata* lists[] = {&user_, &classes, &scalars};
    if (earlier_format_) {
      lists[0] = &numbers_;
      lists[1] = &user_;
      lists[2] = &classes;
    }
    for (const auto& [key, value] : file_.metadata()) {
      if (key.size() < 2 || key[0] < '0' || key[0] > '2' || key[1] != '.') {
        throw_invalid("{}: metadata entry '{}': expected a name that starts with '0.', '1.' or '2.'", path_, key);
      }
      lists[key[0] - '0']->emplace(key.substr(2), value);
    }
    for (size_t i = 0; !classes.empty(); ++i) {
      auto name = classes.extract(format_text("{}", i));
      if (name.empty()) throw_invalid("{}: the class of layer {} is missing", path_, i);
      classes_.push_back(std::move(name.mapped()));
    }
    scalars.erase("0");
    for (size_t i = 1; !scalars.empty(); ++i) {
      auto name = scalars.extract(format_text("{}.0", i));
      auto kind = scalars.extract(format_text("{}.1", i));
      if (name.empty() || kind.empty()) throw_invalid("{}: metadata entry '2.{}' is incomplete", path_, i);
      kinds_[name.mapped()] = kind.mapped();
    }
  }

  void read_layer(size_t i, CacheLayer& layer) {
    const auto known =
        std::find_if(kClasses.begin(), kClasses.end(), [&](const ClassName& c) { return classes_[i] == c.name; });
    if (known == kClasses.end()) {
      throw_error(ErrorKind::unsupported,
                  "{}: layer {}: expected a cache of class KVCache, RotatingKVCache, QuantizedKVCache or "
                  "QuantizedRotatingKVCache, got '{}'",
                  path_, i, classes_[i]);
    }
    layer.kind = known->kind;
    layer.keys = take_rows(i, 0, layer.kind);
    layer.values = take_rows(i, 1, layer.kind);
    if (layer.keys.empty() != layer.values.empty()) {
      throw_invalid("{}: layer {}: expected keys and values, got only one of them", path_, i);
    }
    if (earlier_format_) return read_numbers_as_text(i, layer);
    int64_t place = 2;
    for (const Field field : state_fields(layer.kind)) layer.*field = take_scalar(format_text("{}.{}", i, place++));
  }

  // In earlier versions a plain cache said its length by its shape alone, and the others had, for a while, an
  // allocation step as well.
  void read_numbers_as_text(size_t i, CacheLayer& layer) {
    if (layer.kind == CacheClass::plain) {
      numbers_.erase(format_text("{}", i));
      layer.offset = layer.keys.empty() || layer.keys[0].shape.size() != 4 ? 0 : layer.keys[0].shape[2];
      return;
    }
    std::vector<int64_t> got;
    for (size_t j = 0;; ++j) {
      auto entry = numbers_.extract(format_text("{}.{}", i, j));
      if (entry.empty()) break;
      const auto number = parse_integer(entry.mapped());
      if (!number) throw_invalid("{}: layer {}: '{}' is not an integer", path_, i, entry.mapped());
      got.push_back(*number);
    }
    std::vector<Field> fields = {&CacheLayer::offset, &CacheLayer::group_size, &CacheLayer::bits};
    if (layer.kind == CacheClass::rotating) {
      fields = {&CacheLayer::keep, &CacheLayer::max_size, &CacheLayer::offset, &CacheLayer::index};
    }
    const size_t step_at = layer.kind == CacheClass::rotating ? 2 : 0;
    if (got.size() == fields.size() + 1) got.erase(got.begin() + static_cast<std::ptrdiff_t>(step_at));
    if (layer.kind == CacheClass::quantized_rotating || got.size() != fields.size()) {
      throw_invalid("{}: layer {}: expected {} numbers of a {}, got {}", path_, i, fields.size(), classes_[i],
                    got.size());
    }
    for (size_t j = 0; j < fields.size(); ++j) layer.*fields[j] = got[j];
  }

  // The keys (which == 0) or values of a layer; empty when they are marked as absent.
  std::vector<io::TensorView> take_rows(size_t i, int which, CacheClass kind) {
    const std::string name = format_text("{}.{}", i, which);
    if (auto marked = kinds_.extract(name); !marked.empty()) {
      if (marked.mapped() != "none") {
        throw_invalid("{}: tensor '{}': expected rows, got a value of kind '{}'", path_, name, marked.mapped());
      }
      take_tensor(name);
      return {};
    }
    if (!is_quantized(kind)) return {take_tensor(name)};
    return {take_tensor(name + ".0"), take_tensor(name + ".1"), take_tensor(name + ".2")};
  }

  io::TensorView take_tensor(const std::string& name) {
    const auto entry = tensors_.extract(name);
    if (entry.empty()) throw_invalid("{}: tensor '{}' is missing", path_, name);
    return *entry.mapped();
  }

  int64_t take_scalar(const std::string& name) {
    const io::TensorView tensor = take_tensor(name);
    const auto kind = kinds_.extract(name);
    if (kind.empty() || kind.mapped() != "scalar" || !tensor.shape.empty() || !is_integer(tensor.dtype)) {
      throw_invalid("{}: tensor '{}': expected one integer, marked as a scalar, got {} of {}", path_, name,
                    io::shape_text(tensor.shape), dtype_name(tensor.dtype));
    }
    return load_integer(tensor);
  }

  void check_layer(size_t i, const CacheLayer& layer) const {
    const auto expect = [&](bool right, const char* what, const char* expected, int64_t got) {
      if (!right) throw_invalid("{}: layer {}: {}: expected {}, got {}", path_, i, what, expected, got);
    };
    expect(layer.offset >= 0, "offset", "0 or more", layer.offset);
    if (is_rotating(layer.kind)) {
      expect(layer.max_size > 0, "max_size", "1 or more", layer.max_size);
      expect(layer.keep >= 0 && layer.keep < layer.max_size, "keep", "0 or more and less than max_size", layer.keep);
    }
    if (is_quantized(layer.kind)) {
      expect(layer.bits == 4 || layer.bits == 8, "bits", "4 or 8", layer.bits);
      const bool known = layer.group_size == 32 || layer.group_size == 64 || layer.group_size == 128;
      expect(known, "group_size", "32, 64 or 128", layer.group_size);
    }
    if (layer.keys.empty()) return expect(layer.offset == 0, "offset", "0 without keys", layer.offset);
    for (const auto* part : {&layer.keys, &layer.values}) {
      for (const io::TensorView& tensor : *part) {
        const auto& shape = tensor.shape;
        if (shape.size() != 4 || shape[0] != 1 || shape[1] != layer.keys[0].shape[1] ||
            shape[2] != layer.keys[0].shape[2]) {
          throw_invalid("{}: tensor '{}': expected [1, heads, rows, width] with the heads and rows of '{}', got {}",
                        path_, tensor.name, layer.keys[0].name, io::shape_text(shape));
        }
      }
    }
  }

  const io::SafetensorsFile& file_;
  const std::string& path_;
  bool earlier_format_ = false;
  std::map<std::string, const io::TensorView*> tensors_;  // not yet taken
  std::vector<std::string> classes_;
  Metadata user_;
  Metadata numbers_;  // of the earlier format: "<layer>.<i>" to text, not yet taken
  Metadata kinds_;    // tensor name to "scalar" or "none", not yet taken
};

}  // namespace

const char* cache_class_name(CacheClass kind) {
  return std::find_if(kClasses.begin(), kClasses.end(), [&](const ClassName& c) { return c.kind == kind; })->name;
}

std::vector<RowRun> CacheFile::rows(size_t index) const {
  const CacheLayer& layer = layers[index];
  const int64_t held = layer.keys.empty() ? 0 : layer.keys[0].shape[2];
  const auto require = [&](bool right, const char* what) {
    if (right) return;
    throw_invalid("{}: layer {}: expected {}; got {} rows, offset {}, keep {}, max_size {}, index {}", file.path(),
                  index, what, held, layer.offset, layer.keep, layer.max_size, layer.index);
  };
  if (layer.offset == 0) return {};
  if (!is_rotating(layer.kind)) {
    require(layer.offset <= held, "a row for every position");
    return {{0, 0, layer.offset}};
  }
  require(layer.index >= 0 && layer.index <= held, "the ring's index within its rows");
  const bool wrapped = layer.index < std::min(held, layer.offset);
  std::vector<RowRun> runs = {{0, 0, layer.index}};  // in the order of time; positions follow
  if (wrapped) {
    require(layer.keep <= layer.index, "the ring's index behind what it keeps");
    runs = {{0, 0, layer.keep}, {0, layer.index, held - layer.index}, {0, layer.keep, layer.index - layer.keep}};
  }
  const int64_t in_use = wrapped ? held : layer.index;
  const int64_t dropped = layer.offset - in_use;
  require(dropped >= 0, "no more rows than positions");
  require(dropped == 0 || in_use >= layer.max_size, "a full ring before anything is dropped");
  std::vector<RowRun> placed;
  int64_t next = 0;  // in the order of time
  for (RowRun run : runs) {
    while (run.count > 0) {
      const bool kept = next < layer.keep;
      const int64_t count = kept && dropped > 0 ? std::min(run.count, layer.keep - next) : run.count;
      const int64_t position = kept ? next : next + dropped;
      const bool continues = !placed.empty() && placed.back().position + placed.back().count == position &&
                             placed.back().row + placed.back().count == run.row;
      if (continues) {
        placed.back().count += count;
      } else {
        placed.push_back({position, run.row, count});
      }
      next += count;
      run.row += count;
      run.count -= count;
    }
  }
  return placed;
}

CacheFile read_cache_file(io::SafetensorsFile file) {
  CacheFile result;
  FileReader reader(file);
  result.layers = reader.layers();
  result.metadata = reader.user_metadata();
  result.file = std::move(file);
  return result;
}

namespace {

/// The tensors and metadata of a file to write.
class FileWriter {
 public:
  FileWriter(std::span<const CacheLayer> layers, const Metadata& user) : layers_(layers) {
    for (const auto& [key, value] : user) metadata_["0." + key] = value;
    metadata_["2.0"] = "";
    for (size_t i = 0; i < layers.size(); ++i) add_layer(i);
  }

  void write(const std::string& path, const std::function<CacheRows(size_t)>& rows) const {
    std::vector<io::TensorInfo> tensors = tensors_;
    for (const auto& [name, value] : scalars_) tensors.push_back({name, DType::i32, {}});
    io::SafetensorsWriter writer(path, tensors, metadata_);
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i].keys.empty()) continue;
      const CacheRows data = rows(i);
      for (const auto* part : {&data.keys, &data.values}) {
        for (const auto& bytes : *part) writer.write(bytes);
      }
    }
    for (const auto& [name, value] : scalars_) {
      std::array<std::byte, 4> bytes{};
      for (size_t b = 0; b < bytes.size(); ++b) bytes[b] = static_cast<std::byte>(value >> (8 * b));
      writer.write(bytes);
    }
    writer.finish();
  }

 private:
  void add_layer(size_t i) {
    const CacheLayer& layer = layers_[i];
    metadata_[format_text("1.{}", i)] = cache_class_name(layer.kind);
    int place = 0;
    for (const auto* part : {&layer.keys, &layer.values}) {
      const std::string name = format_text("{}.{}", i, place++);
      if (part->empty()) {
        tensors_.push_back({name, DType::f32, {0}});
        mark(name, "none");
      }
      for (size_t j = 0; j < part->size(); ++j) {
        const io::TensorView& tensor = (*part)[j];
        tensors_.push_back({part->size() == 1 ? name : format_text("{}.{}", name, j), tensor.dtype, tensor.shape});
      }
    }
    for (const Field field : state_fields(layer.kind)) {
      const std::string name = format_text("{}.{}", i, place++);
      scalars_.emplace_back(name, static_cast<int32_t>(layer.*field));
      mark(name, "scalar");
    }
  }

  void mark(const std::string& name, const char* kind) {
    ++marked_;
    metadata_[format_text("2.{}.0", marked_)] = name;
    metadata_[format_text("2.{}.1", marked_)] = kind;
  }

  std::span<const CacheLayer> layers_;
  std::vector<io::TensorInfo> tensors_;
  std::vector<std::pair<std::string, int32_t>> scalars_;
  Metadata metadata_;
  int marked_ = 0;
};

}  // namespace

void write_cache_file(const std::string& path, std::span<const CacheLayer> layers, const Metadata& metadata,
                      const std::function<CacheRows(size_t layer)>& rows) {
  FileWriter(layers, metadata).write(path, rows);
}

}  // namespace mlxlm::engine
