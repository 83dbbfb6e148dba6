// GGUF files, versions 2 and 3, little-endian: a checked view of a mapped file.
// Goal: the metadata and weights that a conversion to MLX's format needs. Non-goal: computing with GGUF's formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/mapped_file.h"

namespace mlxlm::io {

/// Weight formats whose data this reader checks; other types keep their number.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q8_0 = 8, bf16 = 30 };

/// Elements and bytes of the unit a row consists of; nullopt for a type without support.
struct GgufBlock {
  int64_t elements = 0;
  int64_t bytes = 0;
};
std::optional<GgufBlock> gguf_block(GgufType type);
/// "Q4_K", also for types without support; "type 99" for unknown numbers.
std::string gguf_type_name(GgufType type);

/// One weight in the file.
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<int64_t> shape;       ///< row-major: the last extent is contiguous (the file stores the reverse)
  const std::byte* data = nullptr;  ///< any alignment; null for a type without support
  size_t bytes = 0;                 ///< 0 for a type without support
};

/// The type numbers of metadata values.
enum class GgufValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// A list inside the file, checked to lie within it but not copied.
struct GgufArray {
  GgufValueType element = GgufValueType::u8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;
};

using GgufValue = std::variant<int64_t, uint64_t, float, double, bool, std::string_view, GgufArray>;

/// A mapped GGUF file. Views live as long as this object. Immutable after opening; safe to share.
class GgufFile {
 public:
  /// Throws Error naming the file and the key or tensor. No count in the file leads to an allocation larger than a
  /// small multiple of the file's size.
  static GgufFile open(const std::string& path);
  static GgufFile parse(std::shared_ptr<const MappedFile> file);

  const std::string& path() const { return file_->path(); }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  ///< in the order of the header
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }

  /// The value of a key, nullopt when it is absent. Throw Error(invalid_value) when it has another type.
  std::optional<int64_t> find_integer(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;  ///< a float as the shortest decimal that names it
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> find_integers(std::string_view key) const;
  std::optional<std::vector<float>> find_floats(std::string_view key) const;

  /// The same, but a missing key is an Error too.
  int64_t integer(std::string_view key) const { return require(find_integer(key), key); }
  double number(std::string_view key) const { return require(find_number(key), key); }
  std::string_view string(std::string_view key) const { return require(find_string(key), key); }
  std::vector<std::string_view> strings(std::string_view key) const { return require(find_strings(key), key); }

 private:
  template <typename T>
  T require(std::optional<T> value, std::string_view key) const {
    if (!value) fail_missing(key);
    return *std::move(value);
  }
  const GgufValue* find(std::string_view key) const;
  const GgufArray* find_array(std::string_view key) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  [[noreturn]] void fail_type(std::string_view key, std::string_view expected) const;

  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace mlxlm::io
