// mlxlm: run language models in MLX format on any CPU. This header includes the whole public interface.
#pragma once

#if __cplusplus < 202002L
#error "mlxlm needs C++20: compile with -std=c++20, or set CMAKE_CXX_STANDARD to 20"
#endif

#include "mlxlm/batch.h"
#include "mlxlm/convert.h"
#include "mlxlm/error.h"
#include "mlxlm/generate.h"
#include "mlxlm/hub.h"
#include "mlxlm/language_model.h"
#include "mlxlm/model.h"
#include "mlxlm/prompt_cache.h"
#include "mlxlm/sampling.h"
#include "mlxlm/tokenizer.h"
#include "mlxlm/version.h"
