// The one file that holds fmt's functions: no library of it is needed where the program runs.
#define FMT_HEADER_ONLY
#include "base/format.h"

#include <fmt/format.h>

namespace mlxlm {

std::string format_arguments(fmt::string_view text, fmt::format_args args) { return fmt::vformat(text, args); }

}  // namespace mlxlm
