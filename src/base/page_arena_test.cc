#include "base/page_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>

namespace mlxlm {
namespace {

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

TEST(AllocateAligned, StartsAtACacheLineOrAHugePage) {
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{1000}, kHugePageBytes - 1}) {
    void* const memory = allocate_aligned(bytes);
    EXPECT_EQ(address(memory) % 64, 0u);
    std::memset(memory, 1, bytes);
    std::free(memory);
  }
  for (const size_t bytes : {kHugePageBytes, kHugePageBytes + 1, 5 * kHugePageBytes / 2}) {
    void* const memory = allocate_aligned(bytes);
    EXPECT_EQ(address(memory) % kHugePageBytes, 0u);
    std::memset(memory, 1, bytes);
    std::free(memory);
  }
}

// Blocks of several sizes, some larger than a chunk, that come and go: none overlaps another, and what one holds stays.
TEST(PageArena, BlocksNeverOverlap) {
  PageArena arena;
  std::mt19937 random(3);
  const size_t sizes[] = {1, 100, 5000, 1'500'000, 3 * kHugePageBytes, 20 * kHugePageBytes};
  struct Block {
    void* memory;
    size_t bytes;
    uint8_t mark;
  };
  std::vector<Block> blocks;
  const auto holds_its_mark = [](const Block& b) {
    const auto* data = static_cast<const uint8_t*>(b.memory);
    return data[0] == b.mark && data[b.bytes - 1] == b.mark && data[b.bytes / 2] == b.mark;
  };
  for (int i = 0; i < 400; ++i) {
    if (blocks.size() < 20 && random() % 5 < 3) {
      Block b{nullptr, sizes[random() % std::size(sizes)], static_cast<uint8_t>(random())};
      b.memory = arena.allocate(b.bytes);
      ASSERT_NE(b.memory, nullptr);
      ASSERT_EQ(address(b.memory) % 64, 0u);
      std::memset(b.memory, b.mark, b.bytes);
      blocks.push_back(b);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      ASSERT_TRUE(holds_its_mark(blocks.back()));
      arena.release(blocks.back().memory, blocks.back().bytes);
      blocks.pop_back();
    }
    for (const Block& b : blocks) ASSERT_TRUE(holds_its_mark(b));
  }
}

#if defined(__linux__)
size_t resident_bytes() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096;
}

TEST(PageArena, GivesReleasedPagesBackAndUsesTheirPlaceAgain) {
  PageArena arena;
  constexpr size_t kBytes = 3 * kHugePageBytes + 12345;
  const size_t before = resident_bytes();
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) {
    blocks.push_back(arena.allocate(kBytes));
    std::memset(blocks.back(), 7, kBytes);
  }
  EXPECT_GT(resident_bytes(), before + 19 * kBytes);
  for (void* block : blocks) arena.release(block, kBytes);
  EXPECT_LT(resident_bytes(), before + 2 * kBytes);  // page tables, and what the allocator keeps
  EXPECT_EQ(arena.allocate(kBytes), blocks.back());
}
#endif

}  // namespace
}  // namespace mlxlm
