// Compiler hints and byte loads the sets share.
#pragma once

#include <cstdint>
#include <cstring>

/// Everything the instruction sets' objects use is inlined or local: an inline function emitted out of line would be a
/// weak symbol, and the linker might keep the copy built for a CPU this process does not run on.
#define MLXLM_INLINE inline __attribute__((always_inline))
#define MLXLM_NOINLINE __attribute__((noinline))

/// Unrolls the next loop, whose trip count is a constant of at most 16, so that arrays of vectors become registers.
#if defined(__clang__)
#define MLXLM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MLXLM_UNROLL _Pragma("GCC unroll 16")
#endif

/// For lambdas given to the kernels' loops.
#define MLXLM_INLINE_LAMBDA __attribute__((always_inline))

namespace mlxlm {
namespace {

template <class T>
MLXLM_INLINE T load_plain(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

/// `bytes` (2 … 8) bytes as a little-endian number. Put together in registers: writing them to memory one by one and
/// reading eight would stall.
template <int bytes>
MLXLM_INLINE uint64_t load_word(const void* from) {
  const unsigned char* p = static_cast<const unsigned char*>(from);
  if constexpr (bytes == 8) {
    return load_plain<uint64_t>(p);
  } else if constexpr (bytes > 4) {
    return load_plain<uint32_t>(p) | static_cast<uint64_t>(load_plain<uint32_t>(p + bytes - 4)) << (8 * (bytes - 4));
  } else if constexpr (bytes == 4) {
    return load_plain<uint32_t>(p);
  } else if constexpr (bytes == 3) {
    return load_plain<uint16_t>(p) | static_cast<uint64_t>(p[2]) << 16;
  } else {
    return load_plain<uint16_t>(p);
  }
}

}  // namespace
}  // namespace mlxlm
