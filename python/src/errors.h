// Errors between Python and the library: mlxlm::Error becomes Python's own kinds, and what a Python callable raises
// travels around the engine, not through it.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>

namespace mlxlm::python {

/// How long a signal may wait. Taking the GIL may wait for another thread's turn, so it is not taken more often.
inline constexpr auto kSignalInterval = std::chrono::milliseconds(50);

namespace nb = nanobind;

/// Tells mlxlm::Error apart for Python. Call once, when the module is made.
void register_errors();

/// Thrown through the engine in place of a Python error, which waits in a RaisedError: an engine that keeps the
/// exception for a while must not keep Python's traceback, its frames and all they refer to.
struct CallableRaised : std::exception {
  const char* what() const noexcept override { return "a Python callable raised an exception"; }
};

/// The Python error that callables of one request have raised. All functions need the GIL.
class RaisedError {
 public:
  /// Keeps the error, unless one is waiting.
  void keep(nb::python_error& error);
  /// Keeps the error that is set in the interpreter.
  void keep_current();
  bool waiting() const { return error_.has_value(); }
  /// Throws the error that waits.
  void raise_waiting();
  /// The error that waits as an exception object, or None; it waits no more.
  nb::object take();

 private:
  std::optional<nb::python_error> error_;
};

/// Calls with the GIL held; a Python error waits in `raised` while CallableRaised goes through the engine. kind: of
/// what the binding itself finds wrong.
template <typename Call>
auto call_with_gil(RaisedError& raised, const Call& call, PyObject* kind = PyExc_TypeError) {
  const nb::gil_scoped_acquire gil;
  try {
    return call();
  } catch (nb::python_error& error) {
    raised.keep(error);
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(kind, error.what());
    raised.keep_current();
  }
  throw CallableRaised();
}

/// Whether a signal (Ctrl-C) has been handled by raising: asked often, on the thread that computes, without the GIL.
/// The error waits in `raised`. Signals reach the main thread only; elsewhere the answer is false, at no cost.
std::function<bool()> make_signal_check(std::shared_ptr<RaisedError> raised);

/// One user at a time, for objects that are used without the GIL. Take and leave it with the GIL held.
class Busy {
 public:
  bool busy() const { return busy_; }

  class Guard {
   public:
    /// Throws ValueError saying that `what` is in use.
    Guard(Busy& owner, const char* what);
    ~Guard() { owner_.busy_ = false; }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Busy& owner_;
  };

 private:
  bool busy_ = false;
};

/// Runs `work` without the GIL and raises what callables or signals have left in `raised`.
template <typename Work>
auto without_gil(RaisedError& raised, const Work& work) {
  const auto run = [&] {
    try {
      const nb::gil_scoped_release release;
      return work();
    } catch (...) {  // of a callable, or because a signal has stopped the work
      raised.raise_waiting();
      throw;
    }
  };
  if constexpr (std::is_void_v<decltype(work())>) {
    run();
    raised.raise_waiting();
  } else {
    auto result = run();
    raised.raise_waiting();
    return result;
  }
}

}  // namespace mlxlm::python
