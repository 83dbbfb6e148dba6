#include "base/float_control.h"

namespace mlxlm {

#if defined(__x86_64__)

namespace {
// MXCSR: all exceptions masked (bits 7 to 12), rounding to nearest, flush-to-zero and denormals-are-zero off.
constexpr uint32_t kStandardMxcsr = 0x1f80;
}  // namespace

FloatControl::FloatControl() : saved_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(kStandardMxcsr); }
FloatControl::~FloatControl() { __builtin_ia32_ldmxcsr(static_cast<uint32_t>(saved_)); }

#elif defined(__aarch64__)

FloatControl::FloatControl() {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
}
FloatControl::~FloatControl() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

#else

FloatControl::FloatControl() = default;
FloatControl::~FloatControl() = default;

#endif

}  // namespace mlxlm
