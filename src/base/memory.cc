#include "base/memory.h"

#include <sys/resource.h>

#include <cstdlib>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

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

void return_freed_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace mlxlm
