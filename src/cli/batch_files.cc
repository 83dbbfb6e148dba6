#include "cli/batch_files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/output.h"

namespace mlxlm::cli {
namespace {

constexpr size_t kLongestLine = size_t{256} << 20;  // a file without newlines must not fill the memory
constexpr int kPollTimeout = 100;                   // milliseconds between looks for a stop request

[[noreturn]] void fail(const std::string& path, const char* what) {
  const int error = errno;
  throw_error(error == ENOENT ? ErrorKind::not_found : ErrorKind::io, "{}: cannot {}: {}", path, what,
              std::strerror(error));
}

}  // namespace

LineReader::LineReader(const std::string& path)
    : path_(path == "-" ? "standard input" : path),
      fd_(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail(path_, "open");
  struct stat status = {};
  if (::fstat(fd_, &status) != 0) fail(path_, "read");
  if (S_ISDIR(status.st_mode)) throw_error(ErrorKind::io, "{}: expected a file of lines, got a folder", path_);
  if (S_ISREG(status.st_mode)) bytes_total_ = status.st_size;
}

LineReader::~LineReader() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

bool LineReader::take_line(std::string& line) {
  const size_t newline = buffer_.find('\n', searched_);
  searched_ = buffer_.size();
  if (newline == std::string::npos && !(ended_ && start_ < buffer_.size())) return false;
  last_was_whole_ = newline != std::string::npos;
  const size_t end = last_was_whole_ ? newline : buffer_.size();
  line.assign(buffer_, start_, end - start_);
  if (line.ends_with('\r')) line.pop_back();
  bytes_read_ += static_cast<int64_t>(end - start_) + (last_was_whole_ ? 1 : 0);
  start_ = searched_ = last_was_whole_ ? end + 1 : end;
  ++line_number_;
  return true;
}

bool LineReader::fill(bool wait) {
  pollfd input = {fd_, POLLIN, 0};
  if (::poll(&input, 1, wait ? kPollTimeout : 0) <= 0) return false;
  buffer_.erase(0, start_);
  searched_ -= start_;
  start_ = 0;
  if (buffer_.size() > kLongestLine) {
    throw_invalid("{}: line {}: expected lines of at most 256 MiB; is this a file of JSON lines?", path_,
                  line_number_ + 1);
  }
  std::array<char, 1 << 16> chunk;
  const ssize_t count = ::read(fd_, chunk.data(), chunk.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (count < 0) fail(path_, "read");
  ended_ = count == 0;
  buffer_.append(chunk.data(), static_cast<size_t>(count));
  return true;
}

LineReader::Event LineReader::read(std::string& line, bool wait, const std::stop_token& stop) {
  while (true) {
    if (take_line(line)) {
      if (line.find_first_not_of(" \t") != std::string::npos) return Event::line;
      continue;
    }
    if (ended_) return Event::end;
    while (!fill(wait)) {
      if (!wait || stop.stop_requested()) return Event::none;
    }
  }
}

AnswerFile::AnswerFile(const std::string& path, bool resume) : path_(path), fd_(-1) {
  if (path == "-") return;
  struct stat status = {};
  const bool special = ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);  // a pipe, /dev/null
  if (special && resume) throw_invalid("{}: --resume needs a regular file", path);
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (resume || special ? 0 : O_EXCL);
  fd_ = ::open(path.c_str(), flags, 0666);
  if (fd_ < 0 && errno == EEXIST) {
    throw_invalid("{}: the file exists; give --resume to go on with it, or another --output", path);
  }
  if (fd_ < 0) fail(path, "create");
}

AnswerFile::~AnswerFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AnswerFile::keep(int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0 || ::lseek(fd_, 0, SEEK_END) < 0) fail(path_, "write");
}

void AnswerFile::write(std::string_view line) {
  if (fd_ < 0) {
    write_out(line);
    return;
  }
  while (!line.empty()) {
    const ssize_t count = ::write(fd_, line.data(), line.size());
    if (count < 0 && errno != EINTR) fail(path_, "write");
    if (count > 0) line.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace mlxlm::cli
