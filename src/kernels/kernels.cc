#include "kernels/kernels.h"

#include <array>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "kernels/sets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif

namespace mlxlm {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;  // not a name every compiler knows
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

struct Sets {
  std::array<const Kernels*, 3> list{};
  size_t count = 0;
};

Sets detect() {
  Sets sets;
#if defined(__x86_64__)
  if (has_avx2()) sets.list[sets.count++] = &avx2::kKernels;
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) sets.list[sets.count++] = &neon_dot::kKernels;
  sets.list[sets.count++] = &neon::kKernels;  // every AArch64 CPU has it
#endif
  sets.list[sets.count++] = &scalar::kKernels;
  return sets;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const Sets sets = detect();
  return {sets.list.data(), sets.count};
}

const Kernels& select_kernels(std::string_view name) {
  const char* source = "instruction set";
  if (name.empty()) {
    const char* variable = std::getenv("MLXLM_ISA");
    if (variable == nullptr || *variable == '\0') return *available_kernels().front();
    name = variable;
    source = "variable MLXLM_ISA";
  }
  std::string known;
  for (const Kernels* kernels : available_kernels()) {
    if (name == kernels->isa) return *kernels;
    known += (known.empty() ? "" : ", ") + std::string(kernels->isa);
  }
  throw_invalid("{}: expected one of {} (what this program holds and this CPU can run), got \"{}\"", source, known,
                name);
}

}  // namespace mlxlm
