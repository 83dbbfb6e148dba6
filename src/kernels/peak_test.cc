#include "kernels/peak.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/peak_sets.h"
#include "mlxlm/error.h"

namespace mlxlm {
namespace {

std::vector<const PeakKernels*> sets() {
#if defined(__x86_64__)
  std::vector<const PeakKernels*> out = {&scalar::kPeak};
  if (available_kernels().size() > 1) out.push_back(&avx2::kPeak);
  return out;
#elif defined(__aarch64__)
  return {&scalar::kPeak, &neon::kPeak};
#else
  return {&scalar::kPeak};
#endif
}

TEST(Peak, ReadSeesEveryByte) {
  // A bit anywhere changes the result, in every set.
  std::vector<std::byte> data(4096);
  for (const PeakKernels* set : sets()) {
    EXPECT_EQ(set->read(data.data(), 4096), 0u) << set->isa;
    for (size_t i = 0; i < 4096; ++i) {
      data[i] = std::byte{0x20};
      EXPECT_NE(set->read(data.data(), 4096), 0u) << set->isa << " byte " << i;
      data[i] = std::byte{0};
    }
  }
}

TEST(Peak, WorkGrowsWithRounds) {
  for (const PeakKernels* set : sets()) {
    EXPECT_GT(set->int8_macs(1), 0) << set->isa;
    EXPECT_EQ(set->int8_macs(40), 40 * set->int8_macs(1)) << set->isa;
    EXPECT_EQ(set->float32_macs(40), 40 * set->float32_macs(1)) << set->isa;
  }
}

TEST(Peak, RatesArePlausible) {
  for (const Kernels* kernels : available_kernels()) {
    const MachineLimits limits = measure_machine(1, kernels->isa);
    EXPECT_GT(limits.read_gb_per_s, 0.05) << kernels->isa;
    EXPECT_LT(limits.read_gb_per_s, 2000) << kernels->isa;
    // More than 512 multiply-adds per cycle at 10 GHz would mean that the loop was optimised away.
    for (const double rate : {limits.int8_gmac_per_s, limits.float32_gmac_per_s}) {
      EXPECT_GT(rate, 0.001) << kernels->isa;
      EXPECT_LT(rate, 5120) << kernels->isa;
    }
  }
}

TEST(Peak, UnknownSetIsAnError) { EXPECT_THROW(measure_machine(1, "mmx"), Error); }

}  // namespace
}  // namespace mlxlm
