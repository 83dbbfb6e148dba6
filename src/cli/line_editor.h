// A line typed at a terminal, with editing and a history.
#pragma once

#include <memory>
#include <string>

namespace mlxlm::cli {

/// Arrow keys, Ctrl-A/E/K/R and their kin, by libedit; a user's ~/.editrc counts. The history lives as long as the
/// object.
class LineEditor {
 public:
  /// Whether standard input and standard error are a terminal that can move its cursor.
  static bool usable();

  /// `interrupt_fd` becomes readable on Ctrl-C.
  explicit LineEditor(int interrupt_fd);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Event { line, end, interrupted };
  /// Shows the prompt and waits for a line, given without its newline.
  Event read(const std::string& prompt, std::string& line);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace mlxlm::cli
