// One command of the program: it declares its options, then runs.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>

namespace CLI {
class App;
}

namespace mlxlm::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  ///< 128 + SIGINT, as shells report it

/// A wrong command line, found after parsing; reported with a pointer to --help, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Command {
 public:
  virtual ~Command() = default;
  /// Declares options bound to this object's fields.
  virtual void add_options(CLI::App& app) = 0;
  /// Does the work; returns an exit code. Throws UsageError, mlxlm::Error, or ClosedOutput.
  virtual int run() = 0;
};

/// A row of the command table.
struct CommandEntry {
  const char* name;
  const char* summary;   ///< one line for the list of commands
  const char* examples;  ///< the footer of the command's help
  std::unique_ptr<Command> (*create)();
};

/// The table, in the order of the help text.
std::span<const CommandEntry> commands();

std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_batch_command();
std::unique_ptr<Command> make_cache_prompt_command();
std::unique_ptr<Command> make_info_command();
std::unique_ptr<Command> make_convert_command();
std::unique_ptr<Command> make_bench_command();

}  // namespace mlxlm::cli
