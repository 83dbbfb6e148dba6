// Errors of the library: every failure a caller can cause is thrown as mlxlm::Error. The library never prints or exits.
#pragma once

#include <stdexcept>
#include <string>

namespace mlxlm {

/// What kind of failure an Error reports; bindings map these to their own exception types.
enum class ErrorKind {
  invalid_value,  ///< an argument, option, prompt or file content is wrong (Python: ValueError)
  not_found,      ///< a file, folder, tensor or name does not exist (Python: FileNotFoundError)
  io,             ///< the operating system refused to open, map, read or write (Python: OSError)
  unsupported,    ///< valid input that this version does not handle (Python: NotImplementedError)
  cancelled,      ///< the caller asked to stop
  internal,       ///< a fault of this library; please report it
};

/// Message form: the place, what was expected, what was got, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace mlxlm
