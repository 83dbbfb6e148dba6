// Plain file access. Everything of this layer that differs between operating systems lives in files.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mlxlm::io {

/// A regular file opened for reading. Throws Error(not_found or io) with the path and the system's reason.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  size_t size() const { return size_; }
  /// Reads exactly n bytes; a file that shrank meanwhile is an error.
  void read(char* to, size_t n);
  /// Maps the whole file read-only, at a multiple of kHugePageBytes: a file system that caches it in large pages can
  /// then map it so. Empty for an empty file. Undo with unmap().
  std::span<const std::byte> map() const;
  static void unmap(std::span<const std::byte> bytes) noexcept;
  /// Takes mapped bytes out of resident memory; they are read again when touched. Only for bytes of map().
  static void release(std::span<const std::byte> bytes) noexcept;

 private:
  std::string path_;
  int fd_ = -1;
  size_t size_ = 0;
};

/// A file written under a temporary name beside its own and renamed by commit(); without a commit it vanishes.
/// Written in blocks of kHugePageBytes, which are cached as huge pages where the file system can.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  void flush();

  std::string path_;
  std::string temporary_;
  std::vector<std::byte> gathered_;  // at most kHugePageBytes
  int fd_ = -1;
};

/// A name beside `path` that no other process or thread uses.
std::string temporary_name(const std::string& path);

/// Names of the entries of a folder, sorted. Throws Error(not_found or io).
std::vector<std::string> list_folder(const std::string& path);
bool file_exists(const std::string& path);

}  // namespace mlxlm::io
