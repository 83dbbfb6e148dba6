// A lock between processes, the same one that huggingface_hub takes: flock on a file.
#pragma once

#include <stop_token>
#include <string>

namespace mlxlm::hub {

/// Held while alive; released by the system when the process dies. Where the file system knows no locks there is none:
/// then the same bytes are written twice, which does no harm.
class FileLock {
 public:
  /// Waits for the lock; throws Error(cancelled) when a stop is requested meanwhile, Error(io) where the file cannot be
  /// made.
  FileLock(const std::string& path, const std::stop_token& cancel);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace mlxlm::hub
