// Lines from standard input, with Ctrl-C as an event.
#pragma once

#include <optional>
#include <string>

#include "cli/line_editor.h"

namespace mlxlm::cli {

class LineInput {
 public:
  using Event = LineEditor::Event;

  /// `interrupt_fd` becomes readable on Ctrl-C (Interrupts::fd()).
  explicit LineInput(int interrupt_fd);

  /// Waits for the next line, without its newline. A last line without a newline counts. On a terminal the prompt is
  /// shown on standard error and the line can be edited: by LineEditor where it is usable, else by the terminal itself.
  Event read(const std::string& prompt, std::string& line);

 private:
  bool take_line(std::string& line);

  int interrupt_fd_;
  std::optional<LineEditor> editor_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace mlxlm::cli
