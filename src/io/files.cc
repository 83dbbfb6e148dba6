#include "io/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/format.h"
#include "base/page_arena.h"

namespace mlxlm::io {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

/// Free addresses for `bytes` bytes, from a multiple of kHugePageBytes on; null where there are none.
void* reserve_addresses(size_t bytes) {
  const size_t reserved = bytes + kHugePageBytes;
  void* const all = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(all), page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t end = (first + bytes + page - 1) / page * page;
  if (first > begin) ::munmap(all, first - begin);
  if (begin + reserved > end) ::munmap(reinterpret_cast<void*>(end), begin + reserved - end);
  return reinterpret_cast<void*>(first);
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // Not blocking: opening a named pipe must fail below instead of waiting for a writer.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    const int code = errno;
    throw_error(code == ENOENT || code == ENOTDIR ? ErrorKind::not_found : ErrorKind::io, "{}: cannot open: {}", path,
                reason(code));
  }
  struct stat info {};
  const int failed = ::fstat(fd_, &info);
  const int code = errno;
  if (failed == 0 && S_ISREG(info.st_mode)) {
    size_ = static_cast<size_t>(info.st_size);
    return;
  }
  ::close(fd_);
  if (failed != 0) throw_error(ErrorKind::io, "{}: cannot read its size: {}", path, reason(code));
  throw_error(ErrorKind::io, "{}: expected a file, got {}", path, S_ISDIR(info.st_mode) ? "a folder" : "a device");
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(char* to, size_t n) {
  while (n > 0) {
    const ssize_t got = ::read(fd_, to, n);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_error(ErrorKind::io, "{}: cannot read: {}", path_, reason(errno));
    if (got == 0) throw_error(ErrorKind::io, "{}: the file ended {} bytes early; did something truncate it?", path_, n);
    to += got;
    n -= static_cast<size_t>(got);
  }
}

std::span<const std::byte> InputFile::map() const {
  if (size_ == 0) return {};
  void* const place = size_ >= kHugePageBytes ? reserve_addresses(size_) : nullptr;
  void* const address = ::mmap(place, size_, PROT_READ, MAP_SHARED | (place != nullptr ? MAP_FIXED : 0), fd_, 0);
  if (address == MAP_FAILED) {
    const int code = errno;
    if (place != nullptr) ::munmap(place, size_);
    throw_error(ErrorKind::io, "{}: cannot map {} bytes: {}", path_, size_, reason(code));
  }
  if (place != nullptr) wish_for_huge_pages(address, size_);  // what is not cached is then read in them
  return {static_cast<const std::byte*>(address), size_};
}

void InputFile::unmap(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

void InputFile::release(std::span<const std::byte> bytes) noexcept {
  // Whole pages: of those at the edges a neighbour may be in use, and reads them again.
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
  // A failure changes nothing but the memory in use.
  if (end > first) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return format_text("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
}

OutputFile::OutputFile(const std::string& path) : path_(path), temporary_(temporary_name(path)) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_error(ErrorKind::io, "{}: cannot create: {}", temporary_, reason(errno));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kHugePageBytes - gathered_.size()));
    gathered_.insert(gathered_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (gathered_.size() == kHugePageBytes) flush();
  }
}

void OutputFile::flush() {
  std::span<const std::byte> bytes = gathered_;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_error(ErrorKind::io, "{}: cannot write: {}", temporary_, reason(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  gathered_.clear();
}

void OutputFile::commit() {
  flush();
  // Synced first: after a power failure the name must not lead to an empty file.
  if (::fsync(fd_) != 0) throw_error(ErrorKind::io, "{}: cannot write: {}", temporary_, reason(errno));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_error(ErrorKind::io, "{}: cannot rename from {}: {}", path_, temporary_, reason(errno));
  }
  ::close(fd_);
  fd_ = -1;
}

std::vector<std::string> list_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator it(path, error);
  if (error) {
    const bool missing = error == std::errc::no_such_file_or_directory;
    throw_error(missing ? ErrorKind::not_found : ErrorKind::io, "{}: cannot list the folder: {}", path,
                error.message());
  }
  std::vector<std::string> names;
  while (it != std::filesystem::directory_iterator()) {
    names.push_back(it->path().filename().string());
    it.increment(error);
    if (error) throw_error(ErrorKind::io, "{}: cannot list the folder: {}", path, error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace mlxlm::io
