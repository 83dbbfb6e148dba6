// Tokenizers and streaming detokenizers.
#pragma once

#include <nanobind/nanobind.h>

namespace mlxlm::python {

void bind_tokenizer(nanobind::module_& m);

}  // namespace mlxlm::python
