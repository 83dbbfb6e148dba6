// Compiler hints the kernels share.
#pragma once

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
