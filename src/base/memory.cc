#include "base/memory.h"

#include <sys/resource.h>

namespace mlxlm {

int64_t peak_resident_bytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#if defined(__APPLE__)
  return usage.ru_maxrss;  // bytes there, kilobytes elsewhere
#else
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
#endif
}

}  // namespace mlxlm
