#include "model.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <future>

#include "options.h"

namespace mlxlm::python {
namespace {

Precision precision_of(nb::handle value) {
  const auto name = option_value<std::string>(value, "precision", "\"fast\" or \"exact\"");
  if (name == "fast") return Precision::fast;
  if (name == "exact") return Precision::exact;
  PyErr_Format(PyExc_ValueError, "precision: expected \"fast\" or \"exact\", got %R", value.ptr());
  throw nb::python_error();
}

nb::tuple progress_tuple(const DownloadProgress& p) {
  const char* stage = p.stage == DownloadProgress::Stage::checking ? "checking" : "downloading";
  return nb::make_tuple(stage, p.bytes_done, p.bytes_total, p.bytes_received, p.files_done, p.files_total);
}

// A progress function that a download's threads call; where it raises, the download stops.
std::function<void(const DownloadProgress&)> make_download_progress(nb::handle function, std::stop_source stop,
                                                                    std::shared_ptr<RaisedError> raised) {
  const auto callable = std::make_shared<Callable>(nb::borrow(function), "progress callback");
  return [callable, stop, raised = std::move(raised)](const DownloadProgress& progress) mutable {
    const nb::gil_scoped_acquire gil;
    try {
      callable->function()(*progress_tuple(progress));
    } catch (nb::python_error& error) {
      raised->keep(error);
      stop.request_stop();
    }
  };
}

// Runs `work` in a thread of its own, so that signals are handled meanwhile; one that raises stops it.
template <typename Work>
auto with_signals(RaisedError& raised, std::stop_source& stop, const Work& work) {
  auto result = std::async(std::launch::async, work);
  for (bool ready = false; !ready;) {
    {
      const nb::gil_scoped_release release;
      ready = result.wait_for(kSignalInterval) == std::future_status::ready;
    }
    if (PyErr_CheckSignals() != 0) {
      raised.keep_current();
      stop.request_stop();
    }
  }
  try {
    auto value = result.get();
    raised.raise_waiting();
    return value;
  } catch (...) {
    raised.raise_waiting();
    throw;
  }
}

nb::tuple load_model(const std::string& path, const nb::dict& options) {
  const auto raised = std::make_shared<RaisedError>();
  std::stop_source stop;
  LoadOptions o;
  o.cancel = stop.get_token();
  OptionTable table;
  table["precision"] = [&](nb::handle value) { o.precision = precision_of(value); };
  table["threads"] = sets(o.threads, "threads", "an int");
  table["kv_bytes"] = sets(o.kv_bytes, "kv_bytes", "an int");
  table["prefix_cache_bytes"] = sets(o.prefix_cache_bytes, "prefix_cache_bytes", "an int");
  table["isa"] = sets(o.isa, "isa", "a string");
  table["revision"] = sets(o.revision, "revision", "a string");
  table["progress"] = [&](nb::handle value) { o.download_progress = make_download_progress(value, stop, raised); };
  apply_options(options, table);
  const Loaded loaded = with_signals(*raised, stop, [&] { return load(path, o); });
  return nb::make_tuple(loaded.model, loaded.tokenizer);
}

std::string download(const std::string& repo, const nb::dict& options) {
  const auto raised = std::make_shared<RaisedError>();
  std::stop_source stop;
  HubOptions o;
  o.cancel = stop.get_token();
  OptionTable table;
  table["revision"] = sets(o.revision, "revision", "a string");
  table["cache_dir"] = sets(o.cache_dir, "cache_dir", "a string");
  table["token"] = sets(o.token, "token", "a string");
  table["endpoint"] = sets(o.endpoint, "endpoint", "a string");
  table["offline"] = [&](nb::handle value) { o.offline = option_value<bool>(value, "offline", "a bool"); };
  table["max_workers"] = sets(o.max_workers, "max_workers", "an int");
  table["progress"] = [&](nb::handle value) { o.progress = make_download_progress(value, stop, raised); };
  apply_options(options, table);
  return with_signals(*raised, stop, [&] { return snapshot_download(repo, o); });
}

nb::dict info_of(const Model& model) {
  const ModelInfo& i = model.info();
  nb::dict info;
  info["path"] = i.path;
  info["model_type"] = i.model_type;
  info["parameters"] = i.parameters;
  info["weight_bytes"] = i.weight_bytes;
  info["bits_per_weight"] = i.bits_per_weight;
  info["n_layers"] = i.n_layers;
  info["windows"] = i.windows;
  info["hidden_size"] = i.hidden_size;
  info["n_heads"] = i.n_heads;
  info["n_kv_heads"] = i.n_kv_heads;
  info["head_dim"] = i.head_dim;
  info["vocab_size"] = i.vocab_size;
  info["max_context"] = i.max_context;
  info["quantization"] = i.quantization;
  info["kernels"] = i.kernels;
  info["threads"] = i.threads;
  info["precision"] = i.precision == Precision::exact ? "exact" : "fast";
  return info;
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<Model>(m, "Model")
      .def_prop_ro("info", info_of)
      .def_prop_ro("eos_token_ids", [](const Model& model) { return model.eos_token_ids(); })
      .def("kv_bytes", [](const Model& model, int64_t tokens) { return model.kv_bytes(tokens); })
      .def("same_as",
           [](const Model& model, const Model& other) { return model.shared_impl() == other.shared_impl(); });
  m.def("load", load_model);
  m.def("snapshot_download", download);
}

}  // namespace mlxlm::python
