#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "io/json_reader.h"

namespace mlxlm::io {
namespace {

constexpr size_t kLengthBytes = 8;
// The reference library's limit; a longer header is a corrupt length.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

uint64_t load_u64_le(const std::byte* p) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) value |= std::to_integer<uint64_t>(p[i]) << (8 * i);
  return value;
}

/// Reads the header of one file.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view header, std::span<const std::byte> data)
      : path_(path), reader_(header, path + ": header"), data_(data) {}

  void parse(std::vector<TensorView>& tensors, std::map<std::string, std::string>& metadata) {
    std::unordered_set<std::string> seen;
    reader_.begin_object();
    for (std::string name; reader_.next_key(name);) {
      if (!seen.insert(name).second) throw_invalid("{}: '{}' appears twice in the header", path_, name);
      if (name == "__metadata__") {
        parse_metadata(metadata);
      } else {
        tensors.push_back(parse_tensor(name));
      }
    }
    reader_.finish();
  }

 private:
  void parse_metadata(std::map<std::string, std::string>& metadata) {
    if (reader_.peek() == JsonReader::Kind::null) {  // as MLX writes none
      reader_.skip_value();
      return;
    }
    reader_.begin_object();
    for (std::string key; reader_.next_key(key);) {
      if (reader_.peek() != JsonReader::Kind::string) reader_.fail("__metadata__: expected strings as values");
      metadata[key] = reader_.read_string();
    }
  }

  TensorView parse_tensor(const std::string& name) {
    TensorView tensor;
    tensor.name = name;
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    if (reader_.peek() != JsonReader::Kind::object) fail(name, "expected an object with dtype, shape and data_offsets");
    reader_.begin_object();
    for (std::string key; reader_.next_key(key);) {
      bool* seen = key == "dtype"          ? &has_dtype
                   : key == "shape"        ? &has_shape
                   : key == "data_offsets" ? &has_offsets
                                           : nullptr;
      if (seen == nullptr) fail(name, format_text("unknown key '{}'; expected dtype, shape and data_offsets", key));
      if (std::exchange(*seen, true)) fail(name, format_text("'{}' appears twice", key));
      if (key == "dtype") {
        parse_dtype(tensor);
      } else if (key == "shape") {
        parse_shape(tensor);
      } else {
        parse_offsets(tensor);
      }
    }
    const char* missing = !has_dtype ? "dtype" : !has_shape ? "shape" : !has_offsets ? "data_offsets" : nullptr;
    if (missing != nullptr) fail(name, format_text("'{}' is missing", missing));
    check_size(tensor);
    return tensor;
  }

  void parse_dtype(TensorView& tensor) {
    if (reader_.peek() != JsonReader::Kind::string) fail(tensor.name, "dtype: expected a string");
    const std::string dtype = reader_.read_string();
    const auto known = dtype_from_name(dtype);
    if (!known) {
      throw_error(
          ErrorKind::unsupported,
          "{}: tensor '{}': unknown dtype '{}'; expected F32, F16, BF16, F64, BOOL, or U or I with 8, 16, 32 or "
          "64",
          path_, tensor.name, dtype);
    }
    tensor.dtype = *known;
  }

  void parse_shape(TensorView& tensor) {
    if (reader_.peek() != JsonReader::Kind::array) fail(tensor.name, "shape: expected a list");
    reader_.begin_array();
    while (reader_.next_element()) tensor.shape.push_back(reader_.read_size(tensor.name + ": shape"));
  }

  void parse_offsets(TensorView& tensor) {
    if (reader_.peek() != JsonReader::Kind::array) fail(tensor.name, "data_offsets: expected a list");
    reader_.begin_array();
    std::vector<size_t> offsets;
    while (reader_.next_element()) {
      if (offsets.size() == 2) fail(tensor.name, "data_offsets: expected two numbers, got more");
      offsets.push_back(static_cast<size_t>(reader_.read_size(tensor.name + ": data_offsets")));
    }
    if (offsets.size() != 2) fail(tensor.name, "data_offsets: expected two numbers, got fewer");
    if (offsets[0] > offsets[1] || offsets[1] > data_.size()) {
      fail(tensor.name, format_text("data_offsets [{}, {}] do not lie in the {} bytes of data; is the file truncated?",
                                    offsets[0], offsets[1], data_.size()));
    }
    tensor.data = data_.data() + offsets[0];
    tensor.bytes = offsets[1] - offsets[0];
  }

  void check_size(const TensorView& tensor) const {
    size_t bytes = dtype_size(tensor.dtype);
    bool overflow = false;
    // A zero extent makes the product zero whatever stands beside it.
    const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    for (const int64_t extent : tensor.shape) {
      if (!empty) overflow |= __builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes);
    }
    if (empty) bytes = 0;
    if (overflow) fail(tensor.name, format_text("shape {} has more bytes than 2^64", shape_text(tensor.shape)));
    if (bytes != tensor.bytes) {
      fail(tensor.name, format_text("shape {} of {} needs {} bytes, data_offsets hold {}", shape_text(tensor.shape),
                                    dtype_name(tensor.dtype), bytes, tensor.bytes));
    }
  }

  [[noreturn]] void fail(const std::string& name, std::string_view message) const {
    throw_invalid("{}: tensor '{}': {}", path_, name, message);
  }

  const std::string& path_;
  JsonReader reader_;
  std::span<const std::byte> data_;
};

void check_overlaps(const std::string& path, const std::vector<TensorView>& in_file_order) {
  const TensorView* last = nullptr;
  for (const TensorView& tensor : in_file_order) {
    if (tensor.bytes == 0) continue;
    if (last != nullptr && tensor.data < last->data + last->bytes) {
      throw_invalid("{}: tensors '{}' and '{}' overlap", path, last->name, tensor.name);
    }
    last = &tensor;
  }
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) { return format_text("[{}]", join(shape, ", ")); }

SafetensorsFile SafetensorsFile::open(const std::string& path) { return parse(MappedFile::open(path)); }

SafetensorsFile SafetensorsFile::parse(std::shared_ptr<const MappedFile> file) {
  const std::string& path = file->path();
  const auto bytes = file->bytes();
  if (bytes.size() < kLengthBytes) {
    throw_invalid("{}: not a safetensors file: expected at least 8 bytes, got {}", path, bytes.size());
  }
  const uint64_t length = load_u64_le(bytes.data());
  if (length > bytes.size() - kLengthBytes || length > kMaxHeaderBytes) {
    throw_invalid(
        "{}: the header claims {} bytes, but the file has {} after its length and the limit is {}; the file is "
        "truncated or no safetensors file",
        path, length, bytes.size() - kLengthBytes, kMaxHeaderBytes);
  }
  const auto header_bytes = bytes.subspan(kLengthBytes, length);
  const std::string_view header(reinterpret_cast<const char*>(header_bytes.data()), header_bytes.size());

  SafetensorsFile result;
  HeaderParser(path, header, bytes.subspan(kLengthBytes + length)).parse(result.tensors_, result.metadata_);
  std::stable_sort(result.tensors_.begin(), result.tensors_.end(),
                   [](const TensorView& a, const TensorView& b) { return a.data < b.data; });
  check_overlaps(path, result.tensors_);
  result.file_ = std::move(file);
  return result;
}

}  // namespace mlxlm::io
