#include "callables.h"

#include <nanobind/stl/string.h>

#include <functional>

namespace mlxlm::python {
namespace {

thread_local const SamplingContext* draw_of_this_thread = nullptr;

class CurrentDraw {
 public:
  explicit CurrentDraw(const SamplingContext& context) : before_(draw_of_this_thread) {
    draw_of_this_thread = &context;
  }
  ~CurrentDraw() { draw_of_this_thread = before_; }
  CurrentDraw(const CurrentDraw&) = delete;
  CurrentDraw& operator=(const CurrentDraw&) = delete;

 private:
  const SamplingContext* before_;
};

std::string name_of(const nb::object& function) {
  for (const char* attribute : {"__qualname__", "__name__"}) {
    const nb::object name = nb::getattr(function, attribute, nb::none());
    if (nb::isinstance<nb::str>(name)) return nb::cast<std::string>(name);
  }
  return nb::cast<std::string>(nb::str(function.type().attr("__qualname__")));
}

class PythonProcessor : public LogitsProcessor {
 public:
  PythonProcessor(std::shared_ptr<Callable> callable, std::shared_ptr<RequestCallables> request)
      : callable_(std::move(callable)), request_(std::move(request)) {}

  void start(const Start&) override { request_->history.reset(); }

  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    const auto memory = std::make_shared<std::vector<float>>(logits.begin(), logits.end());
    process_row(tokens, *memory, memory);
    std::copy(memory->begin(), memory->end(), logits.begin());
  }

  void process_row(std::span<const int32_t> tokens, std::span<float> logits, const RowMemory& memory) override {
    call_with_gil(*request_->raised, [&] {
      const nb::object row = view_row(memory, logits);
      const nb::object result = callable_->function()(request_->history.view(tokens), row);
      store_logits(result, row, logits, callable_->name().c_str());
    });
  }

  std::string name() const override { return callable_->name(); }

 private:
  std::shared_ptr<Callable> callable_;
  std::shared_ptr<RequestCallables> request_;
};

}  // namespace

Callable::Callable(nb::object function, const char* kind)
    : function_(std::move(function)), name_(std::string(kind) + " " + name_of(function_)) {
  if (PyCallable_Check(function_.ptr()) == 0) {
    PyErr_Format(PyExc_TypeError, "expected a callable as %s, got %S", kind, function_.type().ptr());
    throw nb::python_error();
  }
}

Callable::~Callable() {
  const nb::gil_scoped_acquire gil;
  function_.reset();
}

std::shared_ptr<Callable> RequestCallables::add(nb::object function, const char* kind) {
  all.push_back(std::make_shared<Callable>(std::move(function), kind));
  return all.back();
}

int RequestCallables::traverse(visitproc visit, void* arg) const {
  for (const auto& callable : all) Py_VISIT(callable->function().ptr());
  return 0;
}

void RequestCallables::clear() {
  for (const auto& callable : all) callable->clear();
}

std::shared_ptr<LogitsProcessor> make_processor(nb::object function, const std::shared_ptr<RequestCallables>& request) {
  return std::make_shared<PythonProcessor>(request->add(std::move(function), "logits processor"), request);
}

SamplerFunction make_sampler_function(nb::object function, const std::shared_ptr<RequestCallables>& request) {
  return [callable = request->add(std::move(function), "sampler"), raised = request->raised](
             std::span<const float> logprobs, const SamplingContext& context) {
    return call_with_gil(*raised, [&] {
      const CurrentDraw draw(context);
      const nb::object result = callable->function()(view_row(context.row, {context.row->data(), logprobs.size()}));
      return token_of(result, callable->name().c_str());
    });
  };
}

std::function<void(int64_t, int64_t)> make_progress(nb::object function,
                                                    const std::shared_ptr<RequestCallables>& request) {
  return [callable = request->add(std::move(function), "progress callback"), raised = request->raised](
             int64_t done, int64_t total) { call_with_gil(*raised, [&] { callable->function()(done, total); }); };
}

const SamplingContext* current_draw() { return draw_of_this_thread; }

}  // namespace mlxlm::python
