// Dictionaries of options, as the Python layer passes them, become the library's structures.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <map>
#include <string>

#include "callables.h"
#include "mlxlm/generate.h"
#include "prompt_cache.h"

namespace mlxlm::python {

/// What options with these names do with their values.
using OptionTable = std::map<std::string, std::function<void(nb::handle)>>;

/// Hands each item to its entry. Raises TypeError naming an option that is not in the table.
void apply_options(const nb::dict& options, const OptionTable& table);

/// A value of type T, or TypeError naming the option, what was expected and what was got.
template <typename T>
T option_value(nb::handle value, const char* name, const char* expected) {
  T result{};
  // bool is an int in Python, and never meant as one here.
  const bool stray_bool = !std::is_same_v<T, bool> && PyBool_Check(value.ptr());
  if (stray_bool || !nb::try_cast(value, result, std::is_floating_point_v<T>)) {
    PyErr_Format(PyExc_TypeError, "%s: expected %s, got %R", name, expected, value.ptr());
    throw nb::python_error();
  }
  return result;
}

/// An entry that sets `target`.
template <typename T>
std::function<void(nb::handle)> sets(T& target, const char* name, const char* expected) {
  return [&target, name, expected](nb::handle value) { target = option_value<T>(value, name, expected); };
}

/// The entries of SamplerOptions and of the ids that XTC spares.
void add_sampler_options(OptionTable& table, SamplerOptions& sampler, std::vector<int32_t>& xtc_special_tokens);

/// What a request needs to stay alive, beside its options.
struct Request {
  GenerateOptions options;
  std::shared_ptr<PromptCache> prompt_cache;  ///< options.prompt_cache points to it
  CacheHandle* cache_handle = nullptr;        ///< of the same; valid while the dictionary is
  std::shared_ptr<RequestCallables> callables = std::make_shared<RequestCallables>();
};

/// Raises TypeError for unknown names and values of another kind. Processors are the library's, of which the request
/// gets its own copies, or callables.
Request make_request(const nb::dict& options);

}  // namespace mlxlm::python
