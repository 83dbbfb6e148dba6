// Safetensors files: a checked view of a mapped file, and a writer.
// Format: u64 little-endian header length, JSON header, raw little-endian data; tensors may start at any byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "io/mapped_file.h"

namespace mlxlm::io {

/// One tensor inside a mapped file. `data` has no alignment: read it with memcpy or unaligned loads.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

/// "[2048, 576]", for messages.
std::string shape_text(std::span<const int64_t> shape);

/// A mapped safetensors file. The views live as long as this object. Immutable after opening; safe to share.
class SafetensorsFile {
 public:
  /// Throws Error naming the file and the tensor when the header is malformed, when sizes and offsets disagree, lie
  /// outside the file or overlap. Never allocates more than a small multiple of the header's size.
  static SafetensorsFile open(const std::string& path);
  /// The same checks on bytes in memory (for fuzzing); `name` stands for the path in messages.
  static SafetensorsFile parse(std::shared_ptr<const MappedFile> file);

  const std::string& path() const { return file_->path(); }
  const std::vector<TensorView>& tensors() const { return tensors_; }  ///< in file order
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// As MappedFile::release, of a part of one of this file's tensors.
  void release(std::span<const std::byte> part) const { file_->release(part); }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes tensors in the given order, header padded as the reference does not: MLX readers take any length.
/// The file appears under its name only when it is complete. Throws Error on I/O failure.
void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace mlxlm::io
