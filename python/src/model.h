// Models: loading, downloading, facts.
#pragma once

#include <nanobind/nanobind.h>

namespace mlxlm::python {

void bind_model(nanobind::module_& m);

}  // namespace mlxlm::python
