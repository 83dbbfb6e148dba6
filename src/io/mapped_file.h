// Read-only memory-mapped files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace mlxlm::io {

/// A whole file mapped read-only, or bytes in memory that stand for one. Immutable; safe to share between threads.
class MappedFile {
 public:
  /// Throws Error(not_found or io) with the path and the system's reason.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  /// Wraps a copy of bytes, for tests and fuzzing.
  static std::shared_ptr<const MappedFile> from_bytes(std::string name, std::span<const std::byte> bytes);

  virtual ~MappedFile() = default;
  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Takes a part of bytes() out of resident memory; it is read again when touched. Nothing for bytes in memory.
  virtual void release(std::span<const std::byte>) const {}

 protected:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace mlxlm::io
