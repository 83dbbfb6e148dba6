// BatchGenerator: many requests, a step at a time.
#include "batch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>

#include "mlxlm/batch.h"
#include "options.h"
#include "stream.h"

namespace mlxlm::python {
namespace {

constexpr const char* kBusy = "the BatchGenerator is being used by another thread";

BatchOptions batch_options(const nb::dict& options) {
  BatchOptions o;
  OptionTable table;
  table["completion_batch_size"] = sets(o.completion_batch_size, "completion_batch_size", "an int");
  table["prefill_batch_size"] = sets(o.prefill_batch_size, "prefill_batch_size", "an int");
  table["kv_bytes"] = sets(o.kv_bytes, "kv_bytes", "an int");
  table["keep_caches"] = sets(o.keep_caches, "keep_caches", "a bool");
  apply_options(options, table);
  return o;
}

/// The callables of running requests are kept, and visited for Python's garbage collector, by uid.
class Batch {
 public:
  Batch(const Model& model, const Tokenizer& tokenizer, const nb::dict& options)
      : generator_(std::in_place, model, tokenizer, batch_options(options)) {}

  int64_t insert(const TokenArray& prompt, const nb::dict& options) {
    const Busy::Guard guard(busy_, kBusy);
    Request request = make_request(options);
    std::optional<Busy::Guard> cache_guard;
    if (request.cache_handle != nullptr) cache_guard.emplace(request.cache_handle->busy, kCacheBusy);
    const int64_t uid = without_gil(*request.callables->raised,
                                    [&] { return generator().insert(Prompt(as_vector(prompt)), request.options); });
    running_[uid] = request.callables;
    return uid;
  }

  // ([(uid, done, total)], [(uid, response, error)])
  nb::tuple next() {
    const Busy::Guard guard(busy_, kBusy);
    const auto raised = std::make_shared<RaisedError>();
    const auto interrupted = make_signal_check(raised);
    BatchStep step = without_gil(*raised, [&] { return generator().next(interrupted); });
    nb::list prompts, responses;
    for (const BatchPromptProgress& p : step.prompts) prompts.append(nb::make_tuple(p.uid, p.done, p.total));
    for (BatchResponse& r : step.responses) {
      const nb::object error = error_of(r);
      const bool over = r.response.finish_reason.has_value();
      responses.append(nb::make_tuple(r.uid, response_tuple(std::move(r.response)), error));
      if (over) running_.erase(r.uid);
    }
    return nb::make_tuple(prompts, responses);
  }

  bool remove(int64_t uid) {
    const Busy::Guard guard(busy_, kBusy);
    const bool removed = generator().remove(uid);
    running_.erase(uid);
    return removed;
  }

  std::unique_ptr<CacheHandle> extract_cache(int64_t uid) {
    const Busy::Guard guard(busy_, kBusy);
    auto cache = std::make_shared<PromptCache>(generator().extract_cache(uid));
    return std::make_unique<CacheHandle>(CacheHandle{std::move(cache), {}});
  }

  nb::dict stats() const {
    const BatchStats s = generator_ ? generator_->stats() : BatchStats{};
    nb::dict stats;
    stats["prompt_tokens"] = s.prompt_tokens;
    stats["cached_tokens"] = s.cached_tokens;
    stats["prompt_time"] = s.prompt_time;
    stats["generation_tokens"] = s.generation_tokens;
    stats["generation_time"] = s.generation_time;
    stats["peak_memory"] = s.peak_memory;
    stats["draft_tokens"] = s.draft_tokens;
    stats["accepted_tokens"] = s.accepted_tokens;
    stats["preemptions"] = s.preemptions;
    return stats;
  }

  bool idle() const { return !generator_ || generator_->idle(); }

  void close() {
    const Busy::Guard guard(busy_, kBusy);
    clear();
  }

  int traverse(visitproc visit, void* arg) const {
    for (const auto& [uid, callables] : running_) {
      if (const int stop = callables->traverse(visit, arg)) return stop;
    }
    return 0;
  }
  void clear() {
    generator_.reset();
    running_.clear();
  }

 private:
  BatchGenerator& generator() {
    if (!generator_) throw nb::value_error("the BatchGenerator is closed");
    return *generator_;
  }

  // What a request's own callable raised, or the text of another failure as a ValueError, or None.
  nb::object error_of(const BatchResponse& response) {
    if (!response.error) return nb::none();
    const auto request = running_.find(response.uid);
    if (request != running_.end() && request->second->raised->waiting()) return request->second->raised->take();
    return nb::borrow(PyExc_ValueError)(response.error->what());
  }

  std::map<int64_t, std::shared_ptr<RequestCallables>> running_;
  std::optional<BatchGenerator> generator_;  // destroyed before what its requests call
  Busy busy_;
};

int traverse_batch(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  return nb::inst_ptr<Batch>(self)->traverse(visit, arg);
}

int clear_batch(PyObject* self) {
  nb::inst_ptr<Batch>(self)->clear();
  return 0;
}

const PyType_Slot kBatchSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_batch)},
                                   {Py_tp_clear, reinterpret_cast<void*>(clear_batch)},
                                   {0, nullptr}};

}  // namespace

void bind_batch(nb::module_& m) {
  nb::class_<Batch>(m, "Batch", nb::type_slots(kBatchSlots))
      .def(nb::init<const Model&, const Tokenizer&, const nb::dict&>())
      .def("insert", &Batch::insert)
      .def("next", &Batch::next)
      .def("remove", &Batch::remove)
      .def("extract_cache", &Batch::extract_cache)
      .def("stats", &Batch::stats)
      .def("idle", &Batch::idle)
      .def("close", &Batch::close);
}

}  // namespace mlxlm::python
