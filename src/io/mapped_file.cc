#include "io/mapped_file.h"

#include <algorithm>
#include <utility>

#include "io/files.h"

namespace mlxlm::io {
namespace {

class MappingOnDisk final : public MappedFile {
 public:
  explicit MappingOnDisk(const std::string& path) {
    path_ = path;
    bytes_ = InputFile(path).map();
  }
  ~MappingOnDisk() override { InputFile::unmap(bytes_); }
  void release(std::span<const std::byte> part) const override { InputFile::release(part); }
  MappingOnDisk(const MappingOnDisk&) = delete;
  MappingOnDisk& operator=(const MappingOnDisk&) = delete;
};

class BytesInMemory final : public MappedFile {
 public:
  BytesInMemory(std::string name, std::span<const std::byte> bytes)
      : storage_(std::make_unique<std::byte[]>(bytes.size())) {
    path_ = std::move(name);
    std::copy(bytes.begin(), bytes.end(), storage_.get());
    bytes_ = {storage_.get(), bytes.size()};
  }

 private:
  std::unique_ptr<std::byte[]> storage_;  // of the exact size, so that a sanitizer sees reads past the end
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  return std::make_shared<MappingOnDisk>(path);
}

std::shared_ptr<const MappedFile> MappedFile::from_bytes(std::string name, std::span<const std::byte> bytes) {
  return std::make_shared<BytesInMemory>(std::move(name), bytes);
}

}  // namespace mlxlm::io
