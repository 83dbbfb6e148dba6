// Lines from standard input, with Ctrl-C as an event.
#pragma once

#include <string>

namespace mlxlm::cli {

class LineInput {
 public:
  enum class Event { line, end, interrupted };

  /// `interrupt_fd` becomes readable on Ctrl-C (Interrupts::fd()).
  explicit LineInput(int interrupt_fd) : interrupt_fd_(interrupt_fd) {}

  /// Waits for the next line, without its newline. A last line without a newline counts. On a terminal the line is
  /// edited by the terminal itself.
  Event read(std::string& line);

 private:
  bool take_line(std::string& line);

  int interrupt_fd_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace mlxlm::cli
