#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mlxlm::cli {
namespace {

/// Returns 0 or the error number.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (count < 0 && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void write_out(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, text);
  if (error == EPIPE) throw ClosedOutput();
  if (error != 0) throw_error(ErrorKind::io, "standard output: cannot write: {}", std::strerror(error));
}

void write_err(std::string_view text) { write_all(STDERR_FILENO, text); }

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace mlxlm::cli
