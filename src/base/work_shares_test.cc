#include "base/work_shares.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/thread_pool.h"

namespace mlxlm {
namespace {

TEST(WorkShares, HandsOutEveryUnitOnce) {
  for (const int threads : {1, 2, 3, 16}) {
    ThreadPool pool(threads);
    WorkShares shares(threads);
    for (const int64_t n : {0, 1, 2, 7, 100, 5000}) {
      for (const int64_t least : {1, 3, 1000}) {
        std::vector<std::atomic<int>> done(static_cast<size_t>(n));
        shares.reset(n);
        pool.run([&](int thread) {
          for (WorkShares::Piece p = shares.take(thread, least); !p.empty(); p = shares.take(thread, least)) {
            for (int64_t i = p.lo; i < p.hi; ++i) ++done[static_cast<size_t>(i)];
          }
        });
        for (const auto& count : done) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(WorkShares, AThreadTakesItsOwnInOrderAndThenFromTheEndsOfOthers) {
  WorkShares shares(2);
  shares.reset(20);
  int64_t next = 0;
  while (next < 10) {
    const WorkShares::Piece piece = shares.take(0, 2);
    EXPECT_EQ(piece.lo, next);
    EXPECT_EQ(shares.left(0).lo, piece.hi);
    next = piece.hi;
  }
  EXPECT_EQ(next, 10);
  int64_t end = 20;
  while (end > 10) {
    const WorkShares::Piece piece = shares.take(0, 2);
    EXPECT_EQ(piece.hi, end);
    end = piece.lo;
  }
  EXPECT_TRUE(shares.take(0, 2).empty());
  EXPECT_TRUE(shares.take(1, 2).empty());
}

}  // namespace
}  // namespace mlxlm
