#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/error.h"
#include "hub/backoff.h"

namespace mlxlm::hub {
namespace {

constexpr std::chrono::milliseconds kPoll{50};  // a lock is held for seconds to hours

enum class Attempt { locked, taken, impossible };

Attempt try_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    return errno == EWOULDBLOCK ? Attempt::taken : Attempt::impossible;
  }
  return Attempt::locked;
}

/// False when another process removed the file between opening and locking: the lock would then lock nobody out.
bool still_there(int fd, const std::string& path) {
  struct stat own {};
  struct stat named {};
  return ::fstat(fd, &own) == 0 && ::stat(path.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
         own.st_dev == named.st_dev;
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::stop_token& cancel) {
  for (;;) {
    // Writable for the group, as huggingface_hub makes it: users may share a cache.
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (fd_ < 0) {
      throw_error(ErrorKind::io, "{}: cannot create the lock: {}", path, std::generic_category().message(errno));
    }
    try {
      Attempt attempt = try_lock(fd_);
      while (attempt == Attempt::taken) {
        pause_for(kPoll, cancel);
        attempt = try_lock(fd_);
      }
      if (attempt == Attempt::impossible || still_there(fd_, path)) return;
    } catch (...) {
      ::close(fd_);
      throw;
    }
    ::close(fd_);
  }
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace mlxlm::hub
