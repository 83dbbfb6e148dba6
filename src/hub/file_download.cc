#include "hub/file_download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "hub/backoff.h"
#include "hub/file_lock.h"

namespace mlxlm::hub {
namespace {

constexpr size_t kDownloadBuffer = 1 << 20;
constexpr int kAttempts = 5;       // without a new byte: half a minute at most, unless the server asks for longer
constexpr int kWrongContents = 3;  // a server that sends other bytes than announced is not asked for ever

std::string reason(int code) { return std::generic_category().message(code); }

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

/// The .incomplete file and the checksum of what it holds. Bytes are written at their own place, so a second writer
/// that a broken lock lets in writes the same ones.
class FileDownload::Output {
 public:
  Output(std::string path, const RepoFile& file) : path_(std::move(path)), file_(file), buffer_(kDownloadBuffer) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) throw_error(ErrorKind::io, "{}: cannot create: {}", path_, reason(errno));
    reset_digest();
  }
  ~Output() { ::close(fd_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int64_t position() const { return position_; }
  std::span<char> buffer() { return buffer_; }

  /// Takes over what an earlier call left.
  void resume(const std::stop_token& cancel) {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) throw_error(ErrorKind::io, "{}: cannot read its size: {}", path_, reason(errno));
    if (info.st_size > file_.size) return clear();
    while (position_ < info.st_size) {
      throw_if_cancelled(cancel);
      const auto left = static_cast<size_t>(info.st_size - position_);
      const ssize_t n = ::pread(fd_, buffer_.data(), std::min(left, buffer_.size()), position_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_error(ErrorKind::io, "{}: cannot read: {}", path_, reason(errno));
      if (n == 0) break;
      advance(static_cast<size_t>(n));
    }
  }

  /// Appends the first n bytes of the buffer.
  void write(size_t n) {
    for (size_t done = 0; done < n;) {
      const ssize_t written = ::pwrite(fd_, buffer_.data() + done, n - done, position_ + static_cast<int64_t>(done));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        throw_error(ErrorKind::io, "{}: cannot write: {}; what arrived so far is kept", path_, reason(errno));
      }
      done += static_cast<size_t>(written);
    }
    advance(n);
  }

  void clear() {
    if (::ftruncate(fd_, 0) != 0) throw_error(ErrorKind::io, "{}: cannot empty: {}", path_, reason(errno));
    position_ = 0;
    reset_digest();
  }

  std::optional<std::string> wrong_digest() const {
    if (!digest_ || digest_->matches()) return std::nullopt;
    return digest_->hex();
  }

  /// Gives the complete file its name.
  void commit(const std::string& path) {
    // A second writer may have left more behind. Synced first: after a power failure the name must not lead to less.
    if (::ftruncate(fd_, file_.size) != 0 || ::fsync(fd_) != 0) {
      throw_error(ErrorKind::io, "{}: cannot write: {}", path_, reason(errno));
    }
    if (std::rename(path_.c_str(), path.c_str()) != 0) {
      throw_error(ErrorKind::io, "{}: cannot rename from {}: {}", path, path_, reason(errno));
    }
  }

 private:
  void reset_digest() {
    digest_.reset();
    if (BlobDigest::is_known(file_.etag)) digest_.emplace(file_.etag, static_cast<uint64_t>(file_.size));
  }
  void advance(size_t n) {
    if (digest_) digest_->update({buffer_.data(), n});
    position_ += static_cast<int64_t>(n);
  }

  std::string path_;
  const RepoFile& file_;
  std::vector<char> buffer_;
  std::optional<BlobDigest> digest_;  ///< of the bytes before position_; none where the etag states no checksum
  int64_t position_ = 0;
  int fd_ = -1;
};

void FileDownload::run() {
  const FileLock lock(cache_.lock(file_.etag), client_.cancel());
  const std::string blob = cache_.blob(file_.etag);
  // Another process may have been faster.
  if (!cache_.is_intact(blob, file_, client_.cancel())) {
    Output output(cache_.incomplete(file_.etag), file_);
    output.resume(client_.cancel());
    resumed_ = output.position() > 0;
    report(output.position(), 0);
    fetch(output);
    output.commit(blob);
    cache_.keep_verified(blob, file_.etag);
  }
  report(file_.size, 0);
  cache_.make_pointer(commit_, file_);
  progress_.file_done();
}

void FileDownload::fetch(Output& output) {
  Backoff backoff(kAttempts, client_.cancel());
  int64_t furthest = output.position();
  for (;;) {
    try {
      if (output.position() < file_.size) receive(output);
      if (const auto digest = output.wrong_digest()) {
        wrong_content(output, format_text("its checksum is {}, and the Hub states {}", *digest, file_.etag));
      }
      return;
    } catch (const Transient& failure) {
      // Bytes that were there before are no progress: a server without ranges sends them every time.
      if (output.position() > furthest) backoff.reset();
      furthest = std::max(furthest, output.position());
      backoff.after(failure);
    }
  }
}

void FileDownload::receive(Output& output) {
  HttpResponse response = client_.open(commit_, file_, output.position());
  require_place(response, output);
  check_length(response, output.position());
  while (const size_t n = response.read(output.buffer())) {
    throw_if_cancelled(client_.cancel());
    if (output.position() + static_cast<int64_t>(n) > file_.size) {
      wrong_content(output, format_text("it is longer than the {} bytes that the Hub states", file_.size));
    }
    output.write(n);
    report(output.position(), static_cast<int64_t>(n));
  }
  if (output.position() < file_.size) {
    throw Transient(Trouble::unreachable,
                    format_text("{}: the answer ended after {} of {} bytes", where(), output.position(), file_.size));
  }
}

/// The answer must begin where the file goes on, or at its beginning: a server without ranges sends everything.
void FileDownload::require_place(const HttpResponse& response, Output& output) {
  const int64_t asked = output.position();
  if (response.status() == 200) {
    if (asked > 0) start_over(output);
    return;
  }
  // bytes FIRST-LAST/TOTAL
  const std::string range = response.header("Content-Range");
  const size_t dash = range.find('-');
  if (response.status() == 206 && range.starts_with("bytes ") && dash != std::string::npos &&
      number_of(std::string_view(range).substr(6, dash - 6)) == asked) {
    return;
  }
  start_over(output);
  throw Transient(Trouble::malformed, format_text("{}: HTTP {} ({}) for the bytes from {} on", response.url(),
                                                  response.status(), range, asked));
}

/// Before anything is written: a length that cannot be the file's.
void FileDownload::check_length(const HttpResponse& response, int64_t start) const {
  const std::string encoding = response.header("Content-Encoding");
  const auto length = number_of(response.header("Content-Length"));
  if (!encoding.empty() && encoding != "identity") {
    throw Transient(Trouble::malformed, format_text("{}: the answer is encoded ({})", response.url(), encoding));
  }
  if (length && start + *length != file_.size) {
    throw Transient(Trouble::malformed, format_text("{}: expected {} bytes, the server announces {}", response.url(),
                                                    file_.size - start, *length));
  }
}

void FileDownload::start_over(Output& output) {
  output.clear();
  resumed_ = false;
  report(0, 0);
}

void FileDownload::wrong_content(Output& output, const std::string& what) {
  const bool blame_earlier = resumed_;
  start_over(output);
  const std::string message = format_text("{}: not the file that was asked for: {}", where(), what);
  if (!blame_earlier && ++wrong_contents_ >= kWrongContents) {
    throw HubError(Trouble::malformed, ErrorKind::io,
                   format_text("{} ({} times). Something between here and the Hub may change what it sends", message,
                               wrong_contents_));
  }
  throw Transient(Trouble::malformed, message, std::chrono::milliseconds(0));
}

void FileDownload::report(int64_t position, int64_t received) {
  if (position == reported_ && received == 0) return;
  progress_.add(position - reported_, received);
  reported_ = position;
}

}  // namespace mlxlm::hub
