// Processors, samplers and progress functions of the caller's, written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "arrays.h"
#include "errors.h"
#include "mlxlm/sampling.h"

namespace mlxlm::python {

/// A Python object that is called, held by C++ objects that may be destroyed on any thread.
class Callable {
 public:
  /// kind: for messages, e.g. "logits processor". Needs the GIL.
  Callable(nb::object function, const char* kind);
  ~Callable();
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;

  const nb::object& function() const { return function_; }
  const std::string& name() const { return name_; }  ///< e.g. "logits processor ban_word"
  void clear() { function_.reset(); }                ///< needs the GIL

 private:
  nb::object function_;
  std::string name_;
};

/// What the callables of one request share. Its owner visits them for Python's garbage collector.
struct RequestCallables {
  std::shared_ptr<RaisedError> raised = std::make_shared<RaisedError>();
  TokenHistory history;
  std::vector<std::shared_ptr<Callable>> all;

  std::shared_ptr<Callable> add(nb::object function, const char* kind);
  int traverse(visitproc visit, void* arg) const;
  void clear();
};

/// The callables as the library wants them. Each keeps `request`, and calls with the GIL.
std::shared_ptr<LogitsProcessor> make_processor(nb::object function, const std::shared_ptr<RequestCallables>& request);
SamplerFunction make_sampler_function(nb::object function, const std::shared_ptr<RequestCallables>& request);
std::function<void(int64_t, int64_t)> make_progress(nb::object function,
                                                    const std::shared_ptr<RequestCallables>& request);

/// The randomness of the position for which this thread runs a Python sampler or processor now; null: of none.
const SamplingContext* current_draw();

}  // namespace mlxlm::python
