#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include "mlxlm/error.h"

namespace mlxlm {
namespace {

TEST(SelectKernels, NamesASetOrSaysWhichThereAre) {
  for (const Kernels* kernels : available_kernels()) EXPECT_EQ(&select_kernels(kernels->isa), kernels);
  EXPECT_STREQ(available_kernels().back()->isa, "scalar");
  EXPECT_THROW(select_kernels("mmx"), Error);
}

}  // namespace
}  // namespace mlxlm
