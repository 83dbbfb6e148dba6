#include "convert.h"

#include <nanobind/stl/string.h>

#include "mlxlm/convert.h"
#include "options.h"

namespace mlxlm::python {
namespace {

// Called for every block of weights: hands the figures on, and lets signals through.
ConvertProgress make_convert_progress(std::shared_ptr<Callable> callable, std::shared_ptr<RaisedError> raised) {
  return [callable = std::move(callable), check = make_signal_check(raised), raised](int64_t done, int64_t total) {
    if (check()) throw CallableRaised();
    if (callable) call_with_gil(*raised, [&] { callable->function()(done, total); });
  };
}

// The answer of mlx-lm's quant_predicate: a bool, or a dict with bits and group_size.
QuantChoice choice_of(const nb::object& answer) {
  if (PyBool_Check(answer.ptr())) return {nb::cast<bool>(answer), {}};
  if (!nb::isinstance<nb::dict>(answer)) {
    PyErr_Format(PyExc_TypeError, "quant_predicate: expected a bool or a dict, got %R", answer.ptr());
    throw nb::python_error();
  }
  QuantFormat format;
  std::string mode = "affine";
  OptionTable table;
  table["bits"] = sets(format.bits, "quant_predicate: bits", "an int");
  table["group_size"] = sets(format.group_size, "quant_predicate: group_size", "an int");
  table["mode"] = sets(mode, "quant_predicate: mode", "\"affine\"");
  apply_options(nb::borrow<nb::dict>(answer), table);
  if (mode != "affine") throw nb::value_error("quant_predicate: expected mode \"affine\"; there is no other");
  return {true, format};
}

std::function<QuantChoice(const std::string&)> make_choice(nb::handle function, std::shared_ptr<RaisedError> raised) {
  const auto callable = std::make_shared<Callable>(nb::borrow(function), "quant_predicate");
  return [callable, raised = std::move(raised)](const std::string& path) {
    return call_with_gil(
        *raised, [&] { return choice_of(callable->function()(path)); }, PyExc_ValueError);
  };
}

nb::dict report_dict(const ConvertReport& r) {
  nb::dict report;
  report["path"] = r.path;
  report["architecture"] = r.architecture;
  report["model_type"] = r.model_type;
  report["quantization"] = r.quantization;
  report["tensors"] = r.tensors;
  report["parameters"] = r.parameters;
  report["bytes"] = r.bytes;
  report["bits_per_weight"] = r.bits_per_weight;
  report["shards"] = r.shards;
  return report;
}

nb::dict convert_folder(const std::string& hf_path, const std::string& mlx_path, const nb::dict& options) {
  const auto raised = std::make_shared<RaisedError>();
  ConvertOptions o;
  std::shared_ptr<Callable> progress;
  OptionTable table;
  table["quantize"] = sets(o.quantize, "quantize", "a bool");
  table["q_bits"] = sets(o.q_bits, "q_bits", "an int");
  table["q_group_size"] = sets(o.q_group_size, "q_group_size", "an int");
  table["q_mode"] = sets(o.q_mode, "q_mode", "a string");
  table["quant_predicate"] = sets(o.quant_predicate, "quant_predicate", "a string");
  table["choose"] = [&](nb::handle value) { o.choose = make_choice(value, raised); };
  table["dtype"] = sets(o.dtype, "dtype", "a string");
  table["dequantize"] = sets(o.dequantize, "dequantize", "a bool");
  table["threads"] = sets(o.threads, "threads", "an int");
  table["progress"] = [&](nb::handle value) {
    progress = std::make_shared<Callable>(nb::borrow(value), "progress callback");
  };
  apply_options(options, table);
  o.progress = make_convert_progress(progress, raised);
  return report_dict(without_gil(*raised, [&] { return convert(hf_path, mlx_path, o); }));
}

nb::dict convert_file(const std::string& gguf, const std::string& mlx_path) {
  const auto raised = std::make_shared<RaisedError>();
  GgufConvertOptions o;
  o.progress = make_convert_progress(nullptr, raised);
  return report_dict(without_gil(*raised, [&] { return convert_gguf(gguf, mlx_path, o); }));
}

}  // namespace

void bind_convert(nb::module_& m) {
  m.def("convert", convert_folder);
  m.def("convert_gguf", convert_file);
}

}  // namespace mlxlm::python
