// Memory figures of this process.
#pragma once

#include <cstdint>

namespace mlxlm {

/// Largest resident set so far, in bytes (mapped file pages in memory included); 0 where the system does not tell.
int64_t peak_resident_bytes();

/// Asks the allocator to return freed memory to the system; nothing where it cannot be asked.
void return_freed_memory();

}  // namespace mlxlm
