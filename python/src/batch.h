// BatchGenerator.
#pragma once

#include <nanobind/nanobind.h>

namespace mlxlm::python {

void bind_batch(nanobind::module_& m);

}  // namespace mlxlm::python
