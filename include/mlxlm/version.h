#pragma once

namespace mlxlm {

/// "MAJOR.MINOR.PATCH" of the library linked in.
const char* version() noexcept;

}  // namespace mlxlm
