// The tables of the instruction sets. Which of them exist depends on the architecture built for.
#pragma once

#include "kernels/kernels.h"

namespace mlxlm {

namespace scalar {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace neon {
extern const Kernels kKernels;
}
namespace neon_dot {
extern const Kernels kKernels;
}

}  // namespace mlxlm
