#include "mlxlm/version.h"

namespace mlxlm {

const char* version() noexcept { return MLXLM_VERSION; }

}  // namespace mlxlm
