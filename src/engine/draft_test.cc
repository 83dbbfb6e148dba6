#include "engine/draft.h"

#include <gtest/gtest.h>

namespace mlxlm::engine {
namespace {

using Ids = std::vector<int32_t>;

TEST(PromptLookup, ContinuesTheLastOccurrence) {
  PromptLookup lookup;
  Ids history = {1, 2, 3, 4, 5, 6, 7, 3, 4};
  EXPECT_EQ(lookup.propose(history, 3, {}), (Ids{5, 6, 7}));
  EXPECT_EQ(lookup.propose(history, 10, {}), (Ids{5, 6, 7, 3, 4}));
  history.insert(history.end(), {9, 3, 4});
  EXPECT_EQ(lookup.propose(history, 2, {}), (Ids{9, 3}));  // the newest of two
  history.push_back(8);
  EXPECT_TRUE(lookup.propose(history, 2, {}).empty());
}

TEST(PromptLookup, PrefersTheLongerMatch) {
  PromptLookup lookup;
  const Ids history = {1, 2, 3, 4, 50, 9, 3, 4, 60, 1, 2, 3, 4};
  EXPECT_EQ(lookup.propose(history, 1, {}), Ids{50});
}

TEST(PromptLookup, ARunOfOneTokenGoesOn) {
  PromptLookup lookup;
  const Ids history(10, 7);
  EXPECT_EQ(lookup.propose(history, 1, {}), Ids{7});
  EXPECT_TRUE(lookup.propose(Ids{7}, 4, {}).empty());  // another, shorter history
}

TEST(DraftLength, GrowsWithSuccessAndPausesWithoutIt) {
  DraftLength length(16, 0);
  for (int i = 0; i < 20; ++i) {
    const int64_t n = length.next();
    length.record(n, n);
  }
  EXPECT_EQ(length.next(), 16);
  int64_t proposed = 0;
  for (int i = 0; i < 400; ++i) {
    const int64_t n = length.next();
    proposed += n;
    length.record(n, 0);
  }
  EXPECT_LT(proposed, 60);
  EXPECT_GT(proposed, 10);  // it goes on trying
  for (int i = 0; i < 300; ++i) {
    const int64_t n = length.next();
    length.record(n, n);
  }
  EXPECT_EQ(length.next(), 16);
}

}  // namespace
}  // namespace mlxlm::engine
