#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/command.h"

namespace mlxlm::cli {
namespace {

// What the handler may touch: lock-free atomics and async-signal-safe calls only.
std::atomic<int> g_write_fd{-1};
std::atomic<int> g_unanswered{0};
std::atomic<bool> g_second_kills{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void on_interrupt(int) {
  const int saved = errno;
  if (g_unanswered.fetch_add(1) > 0 && g_second_kills) ::_exit(kExitInterrupted);
  if (const int fd = g_write_fd; fd >= 0) {
    [[maybe_unused]] const ssize_t ignored = ::write(fd, "!", 1);  // a full pipe already tells the news
  }
  errno = saved;
}

extern "C" void exit_now(int) { ::_exit(kExitInterrupted); }

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends;
  if (::pipe(ends.data()) != 0) throw_error(ErrorKind::io, "cannot create a pipe: {}", std::strerror(errno));
  for (const int fd : ends) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return ends;
}

void drain(int fd) {
  std::array<char, 64> buffer;
  while (::read(fd, buffer.data(), buffer.size()) > 0) {
  }
}

void set_handler(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void exit_on_interrupt() { set_handler(exit_now); }

Interrupts::Interrupts(SecondInterrupt second) : pipe_(make_pipe()) {
  g_unanswered = 0;
  g_second_kills = second == SecondInterrupt::kills;
  g_write_fd = pipe_[1];
  set_handler(on_interrupt);
}

Interrupts::~Interrupts() {
  set_handler(exit_now);
  g_write_fd = -1;
  for (const int fd : pipe_) ::close(fd);
}

void Interrupts::clear() {
  drain(pipe_[0]);
  g_unanswered = 0;
}

StopOnInterrupt::StopOnInterrupt(Interrupts& interrupts)
    : wake_(make_pipe()), watcher_([this, &interrupts] { watch(interrupts); }) {}

StopOnInterrupt::~StopOnInterrupt() {
  [[maybe_unused]] const ssize_t ignored = ::write(wake_[1], "!", 1);
  watcher_.join();
  for (const int fd : wake_) ::close(fd);
}

void StopOnInterrupt::watch(Interrupts& interrupts) {
  std::array<pollfd, 2> fds = {pollfd{wake_[0], POLLIN, 0}, pollfd{interrupts.fd(), POLLIN, 0}};
  while (true) {
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) {
      drain(interrupts.fd());
      source_.request_stop();
    }
    if (fds[0].revents != 0) return;
  }
}

}  // namespace mlxlm::cli
