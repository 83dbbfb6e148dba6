#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "io/gguf_cursor.h"
#include "io/safetensors.h"

namespace mlxlm::io {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxNesting = 8;
// The smallest entries: a key of length 0 with a one-byte value, a name of length 0 with no extents.
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

constexpr std::array<std::pair<uint32_t, const char*>, 34> kTypeNames = {{
    {0, "F32"},      {1, "F16"},     {2, "Q4_0"},     {3, "Q4_1"},   {6, "Q5_0"},    {7, "Q5_1"},   {8, "Q8_0"},
    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {12, "Q4_K"},  {13, "Q5_K"},   {14, "Q6_K"},  {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},
    {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},    {28, "F64"},   {29, "IQ1_M"},
    {30, "BF16"},    {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"}, {40, "NVFP4"},  {41, "Q1_0"},
}};

/// Bytes of a value of fixed size; 0 for strings and arrays.
uint64_t fixed_size(GgufValueType type) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::i8:
    case GgufValueType::boolean:
      return 1;
    case GgufValueType::u16:
    case GgufValueType::i16:
      return 2;
    case GgufValueType::u32:
    case GgufValueType::i32:
    case GgufValueType::f32:
      return 4;
    case GgufValueType::u64:
    case GgufValueType::i64:
    case GgufValueType::f64:
      return 8;
    case GgufValueType::string:
    case GgufValueType::array:
      return 0;
  }
  return 0;
}

GgufValueType read_value_type(GgufCursor& cursor) {
  const auto number = cursor.read<uint32_t>();
  if (number > static_cast<uint32_t>(GgufValueType::f64)) cursor.fail(format_text("unknown value type {}", number));
  return static_cast<GgufValueType>(number);
}

GgufArray read_array(GgufCursor& cursor, std::span<const std::byte> all, int depth) {
  if (depth > kMaxNesting) cursor.fail(format_text("arrays nested deeper than {}", kMaxNesting));
  GgufArray array;
  array.element = read_value_type(cursor);
  array.count = cursor.read<uint64_t>();
  const size_t begin = cursor.position();
  const uint64_t size = fixed_size(array.element);
  // Every element takes at least one byte, so a count beyond the file's end fails before the loops below.
  if (array.count > cursor.left()) {
    cursor.fail(format_text("an array of {} elements does not fit into the {} bytes left", array.count, cursor.left()));
  }
  if (size != 0) {
    cursor.take(array.count * size);
  } else {
    for (uint64_t i = 0; i < array.count; ++i) {
      if (array.element == GgufValueType::string) {
        cursor.read_string();
      } else {
        read_array(cursor, all, depth + 1);
      }
    }
  }
  array.bytes = all.subspan(begin, cursor.position() - begin);
  return array;
}

GgufValue read_value(GgufCursor& cursor, std::span<const std::byte> all) {
  switch (read_value_type(cursor)) {
    case GgufValueType::u8:
      return uint64_t{cursor.read<uint8_t>()};
    case GgufValueType::u16:
      return uint64_t{cursor.read<uint16_t>()};
    case GgufValueType::u32:
      return uint64_t{cursor.read<uint32_t>()};
    case GgufValueType::u64:
      return cursor.read<uint64_t>();
    case GgufValueType::i8:
      return int64_t{cursor.read<int8_t>()};
    case GgufValueType::i16:
      return int64_t{cursor.read<int16_t>()};
    case GgufValueType::i32:
      return int64_t{cursor.read<int32_t>()};
    case GgufValueType::i64:
      return cursor.read<int64_t>();
    case GgufValueType::f32:
      return cursor.read<float>();
    case GgufValueType::f64:
      return cursor.read<double>();
    case GgufValueType::boolean:
      return cursor.read<uint8_t>() != 0;
    case GgufValueType::string:
      return cursor.read_string();
    case GgufValueType::array:
      return read_array(cursor, all, 0);
  }
  cursor.fail("unknown value type");
}

struct Header {
  uint64_t n_tensors = 0;
  uint64_t n_keys = 0;
};

Header read_header(GgufCursor& cursor) {
  if (cursor.left() < 24) cursor.fail(format_text("not a GGUF file: {} bytes are too few", cursor.left()));
  if (cursor.read<uint32_t>() != kMagic) cursor.fail("not a GGUF file: it does not start with \"GGUF\"");
  const auto version = cursor.read<uint32_t>();
  if (version == 0x02000000 || version == 0x03000000) {
    cursor.fail("a big-endian GGUF file; expected a little-endian one");
  }
  if (version != 2 && version != 3) cursor.fail(format_text("expected GGUF version 2 or 3, got {}", version));
  Header header;
  header.n_tensors = cursor.read<uint64_t>();
  header.n_keys = cursor.read<uint64_t>();
  if (header.n_keys > cursor.left() / kMinKeyBytes || header.n_tensors > cursor.left() / kMinTensorBytes) {
    cursor.fail(format_text("{} keys and {} tensors do not fit into the {} bytes left; is the file truncated?",
                            header.n_keys, header.n_tensors, cursor.left()));
  }
  return header;
}

/// A tensor and where the header says its data lies.
struct Placed {
  GgufTensor tensor;
  uint64_t offset = 0;
};

Placed read_tensor_info(GgufCursor& cursor) {
  Placed placed;
  GgufTensor& tensor = placed.tensor;
  tensor.name = std::string(cursor.read_string());
  cursor.set_place(format_text("tensor '{}'", tensor.name));
  const auto n_dims = cursor.read<uint32_t>();
  if (n_dims < 1 || n_dims > kMaxDims)
    cursor.fail(format_text("expected 1 to {} dimensions, got {}", kMaxDims, n_dims));
  for (uint32_t i = 0; i < n_dims; ++i) {
    const auto extent = cursor.read<uint64_t>();
    if (extent < 1 || extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      cursor.fail(format_text("a dimension of {} elements", extent));
    }
    tensor.shape.push_back(static_cast<int64_t>(extent));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  tensor.type = static_cast<GgufType>(cursor.read<uint32_t>());
  placed.offset = cursor.read<uint64_t>();
  return placed;
}

uint64_t tensor_bytes(const GgufCursor& cursor, const GgufTensor& tensor, const GgufBlock& block) {
  const int64_t row = tensor.shape.back();
  if (row % block.elements != 0) {
    cursor.fail(format_text("shape {}: a row of {} needs a multiple of {} elements", shape_text(tensor.shape),
                            gguf_type_name(tensor.type), block.elements));
  }
  int64_t bytes = block.bytes;
  bool overflow = __builtin_mul_overflow(bytes, row / block.elements, &bytes);
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    overflow |= __builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
  if (overflow) cursor.fail(format_text("shape {} has more bytes than 2^63", shape_text(tensor.shape)));
  return static_cast<uint64_t>(bytes);
}

void place_tensor(GgufCursor& cursor, Placed& placed, std::span<const std::byte> data, uint64_t alignment) {
  GgufTensor& tensor = placed.tensor;
  cursor.set_place(format_text("tensor '{}'", tensor.name));
  if (placed.offset % alignment != 0) {
    cursor.fail(format_text("offset {} is no multiple of the alignment {}", placed.offset, alignment));
  }
  const auto block = gguf_block(tensor.type);
  const uint64_t bytes = block ? tensor_bytes(cursor, tensor, *block) : 0;
  if (placed.offset > data.size() || bytes > data.size() - placed.offset) {
    cursor.fail(format_text("{} bytes at offset {} do not lie in the {} bytes of data; is the file truncated?", bytes,
                            placed.offset, data.size()));
  }
  if (!block) return;
  tensor.data = data.data() + placed.offset;
  tensor.bytes = static_cast<size_t>(bytes);
}

void check_overlaps(const std::string& path, const std::vector<GgufTensor>& tensors) {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : tensors) {
    if (tensor.bytes > 0) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->data < b->data; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->data < order[i - 1]->data + order[i - 1]->bytes) {
      throw_invalid("{}: tensors '{}' and '{}' overlap", path, order[i - 1]->name, order[i]->name);
    }
  }
}

void check_unique_names(const std::string& path, const std::vector<GgufTensor>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) throw_invalid("{}: tensor '{}' appears twice", path, *twice);
}

}  // namespace

std::optional<GgufBlock> gguf_block(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return GgufBlock{1, 4};
    case GgufType::f16:
    case GgufType::bf16:
      return GgufBlock{1, 2};
    case GgufType::q4_0:
      return GgufBlock{32, 18};
    case GgufType::q4_1:
      return GgufBlock{32, 20};
    case GgufType::q8_0:
      return GgufBlock{32, 34};
  }
  return std::nullopt;
}

std::string gguf_type_name(GgufType type) {
  for (const auto& [number, name] : kTypeNames) {
    if (number == static_cast<uint32_t>(type)) return name;
  }
  return format_text("type {}", static_cast<uint32_t>(type));
}

GgufFile GgufFile::open(const std::string& path) { return parse(MappedFile::open(path)); }

GgufFile GgufFile::parse(std::shared_ptr<const MappedFile> file) {
  GgufFile result;
  result.file_ = std::move(file);
  const std::string& path = result.path();
  const auto all = result.file_->bytes();
  GgufCursor cursor(all, path);
  const Header header = read_header(cursor);

  for (uint64_t i = 0; i < header.n_keys; ++i) {
    cursor.set_place(format_text("key {} of {}", i + 1, header.n_keys));
    std::string key(cursor.read_string());
    cursor.set_place(format_text("key '{}'", key));
    const auto [it, added] = result.metadata_.emplace(std::move(key), read_value(cursor, all));
    if (!added) cursor.fail("appears twice");
  }
  const auto alignment = static_cast<uint64_t>(result.find_integer("general.alignment").value_or(kDefaultAlignment));
  if (alignment == 0 || alignment > (uint64_t{1} << 20) || (alignment & (alignment - 1)) != 0) {
    throw_invalid("{}: key 'general.alignment': expected a power of two up to 2^20, got {}", path, alignment);
  }

  std::vector<Placed> placed;
  for (uint64_t i = 0; i < header.n_tensors; ++i) {
    cursor.set_place(format_text("tensor {} of {}", i + 1, header.n_tensors));
    placed.push_back(read_tensor_info(cursor));
  }
  const size_t start = std::min<size_t>(all.size(), (cursor.position() + alignment - 1) / alignment * alignment);
  for (Placed& p : placed) {
    place_tensor(cursor, p, all.subspan(start), alignment);
    result.tensors_.push_back(std::move(p.tensor));
  }
  check_unique_names(path, result.tensors_);
  check_overlaps(path, result.tensors_);
  return result;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

void GgufFile::fail_missing(std::string_view key) const { throw_invalid("{}: key '{}' is missing", path(), key); }

void GgufFile::fail_type(std::string_view key, std::string_view expected) const {
  static constexpr std::array<const char*, 7> kNames = {"an integer", "an integer", "a float", "a float",
                                                        "a boolean",  "a string",   "an array"};
  throw_invalid("{}: key '{}': expected {}, got {}", path(), key, expected, kNames[find(key)->index()]);
}

std::optional<int64_t> GgufFile::find_integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<int64_t>(value)) return *whole;
  const auto* large = std::get_if<uint64_t>(value);
  if (large == nullptr) fail_type(key, "an integer");
  if (*large > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw_invalid("{}: key '{}': {} is too large", path(), key, *large);
  }
  return static_cast<int64_t>(*large);
}

std::optional<double> GgufFile::find_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* wide = std::get_if<double>(value)) return *wide;
  if (const auto* narrow = std::get_if<float>(value)) {
    // 1e-5f is not 1e-5: the shortest decimal that means this float is what the author wrote.
    std::array<char, 32> text{};
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), *narrow);
    double number = 0;
    if (error != std::errc{} || std::from_chars(text.data(), end, number).ec != std::errc{}) return *narrow;
    return number;
  }
  if (std::holds_alternative<int64_t>(*value) || std::holds_alternative<uint64_t>(*value)) {
    return static_cast<double>(*find_integer(key));
  }
  fail_type(key, "a number");
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(value);
  if (flag == nullptr) fail_type(key, "a boolean");
  return *flag;
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string_view>(value);
  if (text == nullptr) fail_type(key, "a string");
  return *text;
}

const GgufArray* GgufFile::find_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(value);
  if (array == nullptr) fail_type(key, "an array");
  return array;
}

std::optional<std::vector<std::string_view>> GgufFile::find_strings(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (array == nullptr) return std::nullopt;
  if (array->element != GgufValueType::string) fail_type(key, "an array of strings");
  GgufCursor cursor(array->bytes, path());
  std::vector<std::string_view> strings;
  strings.reserve(array->count);  // at most an eighth of the file's size: each has a length of 8 bytes
  for (uint64_t i = 0; i < array->count; ++i) strings.push_back(cursor.read_string());
  return strings;
}

std::optional<std::vector<int64_t>> GgufFile::find_integers(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (array == nullptr) return std::nullopt;
  GgufCursor cursor(array->bytes, path());
  std::vector<int64_t> integers;
  integers.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    switch (array->element) {
      case GgufValueType::u8:
        integers.push_back(cursor.read<uint8_t>());
        break;
      case GgufValueType::i8:
        integers.push_back(cursor.read<int8_t>());
        break;
      case GgufValueType::u16:
        integers.push_back(cursor.read<uint16_t>());
        break;
      case GgufValueType::i16:
        integers.push_back(cursor.read<int16_t>());
        break;
      case GgufValueType::u32:
        integers.push_back(cursor.read<uint32_t>());
        break;
      case GgufValueType::i32:
        integers.push_back(cursor.read<int32_t>());
        break;
      case GgufValueType::i64:
        integers.push_back(cursor.read<int64_t>());
        break;
      default:
        fail_type(key, "an array of integers");
    }
  }
  return integers;
}

std::optional<std::vector<float>> GgufFile::find_floats(std::string_view key) const {
  const GgufArray* array = find_array(key);
  if (array == nullptr) return std::nullopt;
  if (array->element != GgufValueType::f32) fail_type(key, "an array of floats");
  GgufCursor cursor(array->bytes, path());
  std::vector<float> floats;
  floats.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) floats.push_back(cursor.read<float>());
  return floats;
}

}  // namespace mlxlm::io
