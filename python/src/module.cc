// mlxlm._core: the library for the Python layer in python/mlxlm, which checks and documents what users call.
#include <nanobind/nanobind.h>

#include "batch.h"
#include "convert.h"
#include "errors.h"
#include "mlxlm/version.h"
#include "model.h"
#include "prompt_cache.h"
#include "sampling.h"
#include "stream.h"
#include "tokenizer.h"

NB_MODULE(_core, m) {
  namespace python = mlxlm::python;
  m.attr("__version__") = mlxlm::version();
  python::register_errors();
  python::bind_tokenizer(m);
  python::bind_model(m);
  python::bind_prompt_cache(m);
  python::bind_sampling(m);
  python::bind_stream(m);
  python::bind_batch(m);
  python::bind_convert(m);
}
