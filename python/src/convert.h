// Making model folders.
#pragma once

#include <nanobind/nanobind.h>

namespace mlxlm::python {

void bind_convert(nanobind::module_& m);

}  // namespace mlxlm::python
