// The library's own logits processors as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "mlxlm/sampling.h"

namespace mlxlm::python {

/// One of the library's processors. An object serves one request at a time, so each request gets a copy.
struct Processor {
  std::shared_ptr<LogitsProcessor> prototype;

  std::shared_ptr<LogitsProcessor> copy() const;
};

void bind_sampling(nanobind::module_& m);

}  // namespace mlxlm::python
