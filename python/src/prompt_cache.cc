#include "prompt_cache.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "arrays.h"
#include "options.h"

namespace mlxlm::python {
namespace {

using Metadata = std::map<std::string, std::string>;

std::unique_ptr<CacheHandle> handle_of(PromptCache cache) {
  return std::make_unique<CacheHandle>(CacheHandle{std::make_shared<PromptCache>(std::move(cache)), {}});
}

// Runs `work` on the cache without the GIL, alone.
template <typename Work>
auto exclusively(CacheHandle& handle, const Work& work) {
  const Busy::Guard guard(handle.busy, kCacheBusy);
  RaisedError none;
  return without_gil(none, [&] { return work(*handle.cache); });
}

std::unique_ptr<CacheHandle> make_cache(const Model& model, const nb::dict& options) {
  return handle_of(PromptCache(model, make_request(options).options.cache));
}

nb::tuple load_cache(const Model& model, const std::string& path) {
  RaisedError none;
  LoadedPromptCache loaded = without_gil(none, [&] { return load_prompt_cache(model, path); });
  return nb::make_tuple(nb::cast(handle_of(std::move(loaded.cache)).release(), nb::rv_policy::take_ownership),
                        loaded.metadata);
}

nb::dict options_of(const CacheHandle& handle) {
  const PromptCacheOptions& o = handle.cache->options();
  nb::dict options;
  options["max_kv_size"] = o.max_kv_size;
  options["keep"] = o.keep;
  options["kv_bits"] = o.kv_bits;
  options["kv_group_size"] = o.kv_group_size;
  options["quantized_kv_start"] = o.quantized_kv_start;
  return options;
}

// [tokens, vocab] float32
nb::object logits(const Model& model, const TokenArray& ids, CacheHandle& handle) {
  const auto raised = std::make_shared<RaisedError>();
  const auto interrupted = make_signal_check(raised);
  const Busy::Guard guard(handle.busy, kCacheBusy);
  std::vector<float> values =
      without_gil(*raised, [&] { return compute_logits(model, as_span(ids), *handle.cache, interrupted); });
  return own_array(std::move(values), {ids.size(), static_cast<size_t>(model.info().vocab_size)});
}

}  // namespace

void bind_prompt_cache(nb::module_& m) {
  nb::class_<CacheHandle>(m, "PromptCache")
      .def("__len__", [](const CacheHandle& c) { return c.cache->size(); })
      .def_prop_ro("tokens", [](const CacheHandle& c) { return c.cache->tokens(); })
      .def_prop_ro("options", options_of)
      .def_prop_ro("nbytes", [](const CacheHandle& c) { return c.cache->bytes(); })
      .def("fork", [](CacheHandle& c) { return handle_of(exclusively(c, [](PromptCache& p) { return p.fork(); })); })
      .def("can_trim", [](const CacheHandle& c, int64_t n) { return c.cache->can_trim(n); })
      .def("trim", [](CacheHandle& c, int64_t n) { return exclusively(c, [n](PromptCache& p) { return p.trim(n); }); })
      .def("save", [](CacheHandle& c, const std::string& path, const Metadata& metadata) {
        exclusively(c, [&](PromptCache& p) { p.save(path, metadata); });
      });
  m.def("make_prompt_cache", make_cache);
  m.def("load_prompt_cache", load_cache);
  m.def("read_prompt_cache_metadata", read_prompt_cache_metadata, nb::call_guard<nb::gil_scoped_release>());
  m.def("compute_logits", logits);
}

}  // namespace mlxlm::python
