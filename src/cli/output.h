// Standard output and standard error of the program.
#pragma once

#include <exception>
#include <string_view>

namespace mlxlm::cli {

/// The reader of standard output has gone (| head -1): the program ends quietly.
class ClosedOutput : public std::exception {
 public:
  const char* what() const noexcept override { return "standard output was closed"; }
};

/// Writes all of text to standard output at once, so that each streamed piece is seen when it is made; tokens are
/// milliseconds apart, so buffering would gain nothing. Throws ClosedOutput, or Error(io) when the disk is full.
void write_out(std::string_view text);

/// Writes to standard error; failures are ignored, as there is nowhere left to report them.
void write_err(std::string_view text);

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

}  // namespace mlxlm::cli
