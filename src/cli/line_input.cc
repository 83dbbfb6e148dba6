#include "cli/line_input.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/output.h"

namespace mlxlm::cli {

LineInput::LineInput(int interrupt_fd) : interrupt_fd_(interrupt_fd) {
  if (LineEditor::usable()) editor_.emplace(interrupt_fd);
}

bool LineInput::take_line(std::string& line) {
  const size_t newline = buffer_.find('\n');
  if (newline == std::string::npos && !(ended_ && !buffer_.empty())) return false;
  line = buffer_.substr(0, newline);
  buffer_.erase(0, newline == std::string::npos ? newline : newline + 1);
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

LineInput::Event LineInput::read(const std::string& prompt, std::string& line) {
  if (editor_) return editor_->read(prompt, line);
  if (stdin_is_terminal()) write_err(prompt);
  while (!take_line(line)) {
    if (ended_) return Event::end;
    std::array<pollfd, 2> fds = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{interrupt_fd_, POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;  // EINTR: the pipe tells why
    if (fds[1].revents != 0) return Event::interrupted;
    std::array<char, 4096> chunk;
    const ssize_t count = ::read(STDIN_FILENO, chunk.data(), chunk.size());
    if (count > 0) {
      buffer_.append(chunk.data(), static_cast<size_t>(count));
    } else if (count == 0 || errno == EIO) {  // EIO: the terminal has gone
      ended_ = true;
    } else if (errno != EINTR && errno != EAGAIN) {
      throw_error(ErrorKind::io, "standard input: cannot read: {}", std::strerror(errno));
    }
  }
  return Event::line;
}

}  // namespace mlxlm::cli
