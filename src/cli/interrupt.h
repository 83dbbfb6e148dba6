// Ctrl-C: as an event that a reader can wait for, or as a stop request for work in progress.
#pragma once

#include <array>
#include <stop_token>
#include <thread>

namespace mlxlm::cli {

/// Makes Ctrl-C end the program at once with kExitInterrupted, wherever no Interrupts object is alive.
void exit_on_interrupt();

/// What a second Ctrl-C does while the first is still unanswered.
enum class SecondInterrupt { kills, ignored };

/// Catches SIGINT while alive; one object at a time.
class Interrupts {
 public:
  explicit Interrupts(SecondInterrupt second);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int fd() const { return pipe_[0]; }  ///< readable after a Ctrl-C until clear()
  void clear();                        ///< forgets every Ctrl-C so far

 private:
  std::array<int, 2> pipe_;
};

/// While alive, a Ctrl-C requests a stop through token().
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(Interrupts& interrupts);
  ~StopOnInterrupt();
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  void watch(Interrupts& interrupts);

  std::stop_source source_;
  std::array<int, 2> wake_;
  std::thread watcher_;
};

}  // namespace mlxlm::cli
