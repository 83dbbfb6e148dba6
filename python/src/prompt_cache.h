// Prompt caches.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "errors.h"
#include "mlxlm/prompt_cache.h"

namespace mlxlm::python {

/// A cache that a Python object and the streams that continue it share.
struct CacheHandle {
  std::shared_ptr<PromptCache> cache;
  Busy busy;  // while a call uses it without the GIL
};

inline constexpr const char* kCacheBusy = "prompt_cache: another thread is using it";

void bind_prompt_cache(nb::module_& m);

}  // namespace mlxlm::python
