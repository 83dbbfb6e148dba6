#include "cli/chat_session.h"

#include <gtest/gtest.h>

namespace mlxlm::cli {
namespace {

// The whole session is tested with a model by tests/cli/test_cli_chat.py; this is its arithmetic.
TEST(CommonPrefix, CountsLeadingIds) {
  EXPECT_EQ(common_prefix({}, {}), 0u);
  EXPECT_EQ(common_prefix({1, 2, 3}, {}), 0u);
  EXPECT_EQ(common_prefix({1, 2, 3}, {1, 2}), 2u);
  EXPECT_EQ(common_prefix({1, 2}, {1, 2, 3}), 2u);
  EXPECT_EQ(common_prefix({1, 2, 3}, {1, 9, 3}), 1u);
  EXPECT_EQ(common_prefix({4}, {1}), 0u);
}

}  // namespace
}  // namespace mlxlm::cli
