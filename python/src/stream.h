// stream_generate.
#pragma once

#include <nanobind/nanobind.h>

#include "mlxlm/generate.h"

namespace mlxlm::python {

namespace nb = nanobind;

/// The values of mlxlm.GenerationResponse in the order of its fields.
nb::tuple response_tuple(GenerationResponse&& response);

void bind_stream(nb::module_& m);

}  // namespace mlxlm::python
