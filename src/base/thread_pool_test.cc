#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <stdexcept>

#include "base/float_control.h"

namespace mlxlm {
namespace {

class ThreadPoolSizes : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, EveryIndexRunsOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (int64_t n : {0, 1, 7, 8, 9, 100, 1001}) {
    std::vector<std::atomic<int>> ranges(static_cast<size_t>(n)), tasks(static_cast<size_t>(n));
    pool.ranges(n, 8, [&](int64_t lo, int64_t hi, int) {
      EXPECT_EQ(lo % 8, 0);
      for (int64_t i = lo; i < hi; ++i) ++ranges[static_cast<size_t>(i)];
    });
    pool.tasks(n, [&](int64_t i, int) { ++tasks[static_cast<size_t>(i)]; });
    for (auto& count : ranges) EXPECT_EQ(count, 1);
    for (auto& count : tasks) EXPECT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolSizes, ManyRegionsInARowAndAfterSleep) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> calls{0};
  for (int i = 0; i < 2000; ++i) pool.run([&](int) { ++calls; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long enough for the workers to sleep
  for (int i = 0; i < 10; ++i) {
    pool.run([&](int) { ++calls; });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(calls, 2010 * GetParam());
}

TEST_P(ThreadPoolSizes, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  const int last = GetParam() - 1;
  EXPECT_THROW(pool.run([&](int thread) {
    if (thread == last) throw std::runtime_error("x");
  }),
               std::runtime_error);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  EXPECT_EQ(calls, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSizes, testing::Values(1, 2, 3, 8));

#if defined(__x86_64__)
TEST(FloatControl, SetsTheStandardModeAndRestores) {
  const uint32_t flush = 0x9fc0;  // flush-to-zero and denormals-are-zero, as -ffast-math start-up code sets them
  const uint32_t before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(flush);
  {
    const FloatControl control;
    volatile float tiny = 1e-39f;
    EXPECT_GT(tiny * 1.0f, 0.0f);
  }
  EXPECT_EQ(__builtin_ia32_stmxcsr(), flush);
  __builtin_ia32_ldmxcsr(before);
}
#endif

}  // namespace
}  // namespace mlxlm
