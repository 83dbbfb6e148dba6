#include "errors.h"

#include <chrono>

#include "mlxlm/error.h"

namespace mlxlm::python {
namespace {

PyObject* python_kind(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_value:
      return PyExc_ValueError;
    case ErrorKind::not_found:
      return PyExc_FileNotFoundError;
    case ErrorKind::io:
      return PyExc_OSError;
    case ErrorKind::unsupported:
      return PyExc_NotImplementedError;
    case ErrorKind::cancelled:
      return PyExc_InterruptedError;
    case ErrorKind::internal:
      break;
  }
  return PyExc_RuntimeError;
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    PyErr_SetString(python_kind(error.kind()), error.what());
  }
}

unsigned long main_thread = 0;  // as PyThread_get_thread_ident gives it

}  // namespace

void register_errors() {
  nb::register_exception_translator(translate);
  main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
}

void RaisedError::keep(nb::python_error& error) {
  if (!error_) error_.emplace(std::move(error));
}

void RaisedError::keep_current() {
  nb::python_error error;
  keep(error);
}

void RaisedError::raise_waiting() {
  if (!error_) return;
  nb::python_error error = std::move(*error_);
  error_.reset();
  throw error;
}

nb::object RaisedError::take() {
  if (!error_) return nb::none();
  nb::object value = nb::borrow(error_->value());
  error_.reset();
  return value;
}

std::function<bool()> make_signal_check(std::shared_ptr<RaisedError> raised) {
  using Clock = std::chrono::steady_clock;
  return [raised = std::move(raised), last = Clock::now()]() mutable {
    if (PyThread_get_thread_ident() != main_thread || Clock::now() - last < kSignalInterval) return false;
    const nb::gil_scoped_acquire gil;
    last = Clock::now();
    if (PyErr_CheckSignals() == 0) return false;
    raised->keep_current();
    return true;
  };
}

Busy::Guard::Guard(Busy& owner, const char* what) : owner_(owner) {
  if (owner.busy_) throw nb::value_error(what);
  owner.busy_ = true;
}

}  // namespace mlxlm::python
