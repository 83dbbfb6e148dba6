// stream_generate: one request, a response at a time.
#include "stream.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stop_token>

#include "options.h"

namespace mlxlm::python {
namespace {

/// A running generation. The cache, the callables and the model live as long as it does.
class Stream {
 public:
  Stream(const Model& model, const Tokenizer& tokenizer, const TokenArray& prompt, const nb::dict& options)
      : request_(make_request(options)) {
    GenerateOptions& o = request_.options;
    o.cancel = stop_.get_token();
    o.interrupted = make_signal_check(request_.callables->raised);
    std::optional<Busy::Guard> guard;
    if (request_.cache_handle != nullptr) guard.emplace(request_.cache_handle->busy, kCacheBusy);
    without_gil(raised(), [&] { stream_.emplace(stream_generate(model, tokenizer, Prompt(as_vector(prompt)), o)); });
    request_.cache_handle = nullptr;
  }

  // The next response as a tuple, or None at the end.
  nb::object next() {
    if (!stream_) return nb::none();
    const Busy::Guard guard(busy_, "the stream is being advanced by another thread");
    try {
      std::optional<GenerationResponse> response = without_gil(raised(), [&] { return stream_->next(); });
      if (!response) {
        end();
        return nb::none();
      }
      nb::object values = response_tuple(std::move(*response));
      if (response->finish_reason) end();
      return values;
    } catch (...) {
      end();
      throw;
    }
  }

  // From any thread: what runs ends soon with finish_reason "cancelled".
  void cancel() { stop_.request_stop(); }

  void close() {
    cancel();
    if (busy_.busy()) return;  // the thread that runs it ends it
    end();
  }

  int traverse(visitproc visit, void* arg) const { return request_.callables->traverse(visit, arg); }
  void clear() {
    end();
    request_.callables->clear();
  }

 private:
  RaisedError& raised() { return *request_.callables->raised; }
  void end() {
    stream_.reset();  // the cache is the caller's again
    request_.options = {};
  }

  Request request_;
  std::stop_source stop_;
  std::optional<TokenStream> stream_;
  Busy busy_;
};

int traverse_stream(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  return nb::inst_ptr<Stream>(self)->traverse(visit, arg);
}

int clear_stream(PyObject* self) {
  nb::inst_ptr<Stream>(self)->clear();
  return 0;
}

const PyType_Slot kStreamSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_stream)},
                                    {Py_tp_clear, reinterpret_cast<void*>(clear_stream)},
                                    {0, nullptr}};

}  // namespace

nb::tuple response_tuple(GenerationResponse&& r) {
  const size_t vocab = r.logprobs.size();
  const nb::object logprobs = vocab > 0 ? own_array(std::move(r.logprobs), {vocab}) : nb::none();
  return nb::make_tuple(r.text, r.token, logprobs, r.from_draft, r.prompt_tokens, r.prompt_tps, r.generation_tokens,
                        r.generation_tps, r.peak_memory, r.finish_reason, r.logprob, r.top_logprobs, r.cached_tokens,
                        r.draft_tokens, r.accepted_tokens, r.seed);
}

void bind_stream(nb::module_& m) {
  nb::class_<Stream>(m, "Stream", nb::type_slots(kStreamSlots))
      .def(nb::init<const Model&, const Tokenizer&, const TokenArray&, const nb::dict&>())
      .def("next", &Stream::next)
      .def("cancel", &Stream::cancel)
      .def("close", &Stream::close);
}

}  // namespace mlxlm::python
