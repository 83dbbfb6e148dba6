// Blocks, windows with a kept start, codes, and rows for saving: whatever the history, what the next query reads is
// what was written there.
#include "nn/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/test_effort.h"

namespace mlxlm::nn {
namespace {

using Values = std::vector<float>;

/// Two layers that keep everything, and one with a window of 100.
std::vector<KvGroup> groups(DType dtype = DType::f16) {
  KvGroup full, windowed;
  full.layout = {2, 64, 64, dtype};
  full.layers = {0, 2};
  windowed.layout = {1, 32, 32, dtype};
  windowed.window = 100;
  windowed.layers = {1};
  return {full, windowed};
}

ThreadPool& threads() {
  static ThreadPool pool(2);
  return pool;
}

/// A sequence beside what was written to it.
class Tracked {
 public:
  Tracked(const std::shared_ptr<KvPool>& pool, const KvOptions& options, std::mt19937& random)
      : s(pool, options), random_(random) {}
  Tracked(KvSequence sequence, std::vector<float> rows, std::mt19937& random)
      : s(std::move(sequence)), rows_(std::move(rows)), random_(random) {}

  const std::vector<float>& rows() const { return rows_; }

  /// What a pass of n tokens does.
  void append(int64_t n) {
    const int64_t before = s.pool().bytes_in_use(), expected = s.bytes_to_prepare(n);
    s.prepare(n);
    ASSERT_EQ(s.pool().bytes_in_use() - before, expected);
    const int64_t end = s.length() + n;
    const int64_t cut = s.quantized() ? s.length() : std::clamp(s.quantized_from(), s.length(), end);
    for (int64_t p = s.length(); p < end; ++p) {
      rows_.push_back(static_cast<float>(random_() % 1000) / 500 - 1);
      if (p == cut && !s.quantized()) s.convert(cut, select_kernels(), threads());
      write(p, p >= cut);
    }
    s.commit(n);
    ASSERT_EQ(s.length(), end);
    ASSERT_EQ(s.quantized(), end > s.quantized_from());
  }

  void trim(int64_t n) {
    const bool possible = s.can_trim(n);
    const int64_t length = s.length();
    ASSERT_EQ(s.trim(n), possible ? n : length);
    rows_.resize(static_cast<size_t>(s.length()));
  }

  /// Every row that the next query reads.
  void check() const {
    for (int layer = 0; layer < 3; ++layer) {
      const size_t g = layer == 1 ? 1 : 0;
      const int64_t window = s.window(g), next = s.length();
      for (int64_t p = 0; p < next; ++p) {
        if (window != 0 && p <= next - window && p >= s.keep(g)) continue;
        ASSERT_EQ(row(layer, p), expected(layer, p)) << "layer " << layer << ", position " << p << " of " << next;
      }
    }
  }

  /// k and v of one row as they are stored.
  Values row(int layer, int64_t p) const {
    const KvLayout layout = s.layout(layer);
    Values k(static_cast<size_t>(layout.n_kv_heads * layout.head_dim)), v(k.size());
    s.read_layer(layer, p, 1, k.data(), v.data());
    k.insert(k.end(), v.begin(), v.end());
    return k;
  }
  Values expected(int layer, int64_t p) const {
    const KvLayout layout = s.layout(layer);
    std::vector<std::byte> block(static_cast<size_t>(layout.layer_bytes()));
    Values k = content(layer, p), v(k.size());
    select_kernels().kv_store(layout, block.data(), 3, k.data(), k.data());
    select_kernels().kv_load(layout, block.data(), 3, k.data(), v.data());
    k.insert(k.end(), v.begin(), v.end());
    return k;
  }

  KvSequence s;

 private:
  // Values that differ along the row and between rows and layers.
  Values content(int layer, int64_t p) const {
    const KvLayout& layout = s.pool().groups()[layer == 1 ? 1 : 0].layout;
    Values values(static_cast<size_t>(layout.n_kv_heads * layout.head_dim));
    for (size_t i = 0; i < values.size(); ++i) {
      const int step = static_cast<int>(i) * (layer + 3) % 17;
      values[i] = rows_[static_cast<size_t>(p)] * (1 + static_cast<float>(step) / 16);
    }
    return values;
  }
  void write(int64_t p, bool coded) {
    for (int layer = 0; layer < 3; ++layer) {
      const size_t g = layer == 1 ? 1 : 0;
      const KvLayout layout = s.layout_of_group(g, coded);
      const auto& blocks = s.blocks(g, coded && !s.quantized());
      const Values k = content(layer, p);
      std::byte* block = blocks[static_cast<size_t>(p / 64)];
      select_kernels().kv_store(layout, block + (layer == 2 ? layout.layer_bytes() : 0), p % 64, k.data(), k.data());
    }
  }
  std::vector<float> rows_;  // by position
  std::mt19937& random_;
};

/// Rows of one sequence into another, in the format they are held in.
void copy_rows(const KvSequence& from, KvSequence& to, int layer, int64_t first, int64_t n) {
  if (from.quantized()) {
    KvCodes k, v;
    from.read_codes(layer, first, n, k, v);
    to.write_codes(layer, first, n, k, v);
    return;
  }
  const KvLayout layout = from.layout(layer);
  Values k(static_cast<size_t>(layout.n_kv_heads * n * layout.head_dim)), v(k.size());
  from.read_layer(layer, first, n, k.data(), v.data());
  to.write_layer(layer, first, n, k.data(), v.data());
}

const KvOptions kOptions[] = {
    {},
    {.max_size = 90, .keep = 4},
    {.max_size = 90, .keep = 0},
    {.max_size = 300, .keep = 130},
    {.max_size = 5, .keep = 4},
    {.bits = 8, .group_size = 32},
    {.bits = 4, .group_size = 32, .quantized_start = 70},
    {.max_size = 90, .keep = 4, .bits = 8, .group_size = 32, .quantized_start = 200},
};

class KvSequences : public testing::TestWithParam<KvOptions> {
 protected:
  std::mt19937 random_{7};
  int64_t draw(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(random_()) % (hi - lo + 1); }
};
INSTANTIATE_TEST_SUITE_P(Options, KvSequences, testing::ValuesIn(kOptions), [](const auto& tested) {
  const KvOptions& o = tested.param;
  return "max" + std::to_string(o.max_size) + "_keep" + std::to_string(o.keep) + "_bits" + std::to_string(o.bits) +
         "_start" + std::to_string(o.quantized_start);
});

TEST_P(KvSequences, HoldWhatTheNextQueryReadsWhateverTheirHistory) {
  const auto pool = std::make_shared<KvPool>(groups(), 0);
  std::vector<std::unique_ptr<Tracked>> all;
  all.push_back(std::make_unique<Tracked>(pool, GetParam(), random_));
  for (int step = 0; step < cases_of(120); ++step) {
    const auto i = static_cast<size_t>(draw(0, static_cast<int64_t>(all.size()) - 1));
    Tracked& one = *all[i];
    const int64_t what = draw(0, 9);
    if (what < 4) {
      ASSERT_NO_FATAL_FAILURE(one.append(draw(1, draw(1, 150))));
    } else if (what < 7) {
      ASSERT_NO_FATAL_FAILURE(one.trim(draw(0, std::min<int64_t>(one.s.length(), draw(0, 70)))));
    } else if (what < 9 && all.size() < 4) {
      all.push_back(std::make_unique<Tracked>(one.s.fork(), one.rows(), random_));
    } else if (all.size() > 1) {
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (const auto& tracked : all) ASSERT_NO_FATAL_FAILURE(tracked->check());
  }
  all.clear();
  EXPECT_EQ(pool->bytes_in_use(), 0);
}

TEST_P(KvSequences, CanRollBackADraftBehindEveryWindow) {
  const auto pool = std::make_shared<KvPool>(groups(), 0);
  for (int64_t start : {60, 64, 127, 128, 250, 333}) {
    Tracked one(pool, GetParam(), random_);
    ASSERT_NO_FATAL_FAILURE(one.append(start));
    ASSERT_NO_FATAL_FAILURE(one.append(48));
    const bool crossed = start < one.s.quantized_from() && one.s.quantized();
    EXPECT_EQ(one.s.can_trim(48), !crossed) << start;
    ASSERT_NO_FATAL_FAILURE(one.trim(48));
    ASSERT_EQ(one.s.length(), crossed ? 0 : start);
    ASSERT_NO_FATAL_FAILURE(one.check());
  }
}

TEST_P(KvSequences, HoldBoundedMemoryInWindows) {
  const auto pool = std::make_shared<KvPool>(groups(), 0);
  Tracked one(pool, GetParam(), random_);
  int64_t early[2] = {}, late[2] = {};  // the most blocks of each group
  for (int i = 0; i < 3000; ++i) {
    ASSERT_NO_FATAL_FAILURE(one.append(1));
    for (size_t g = 0; g < 2; ++g) {
      const auto& blocks = one.s.blocks(g);
      const int64_t held =
          static_cast<int64_t>(blocks.size()) - std::count(blocks.begin(), blocks.end(), KvSequence::kNone);
      int64_t& most = i < 1000 ? early[g] : late[g];
      most = std::max(most, held);
    }
  }
  EXPECT_EQ(late[0] <= early[0], GetParam().max_size > 0);
  EXPECT_LE(late[1], early[1]);
  EXPECT_EQ(pool->bytes_in_use(), one.s.bytes());
}

TEST_P(KvSequences, ComeBackFromTheirRows) {
  const auto pool = std::make_shared<KvPool>(groups(), 0);
  for (int64_t length : {1, 64, 100, 299, 450}) {
    Tracked one(pool, GetParam(), random_);
    ASSERT_NO_FATAL_FAILURE(one.append(length));
    KvSequence copy(pool, GetParam());
    std::vector<int64_t> held_from;
    for (int layer = 0; layer < 3; ++layer) held_from.push_back(one.s.held_from(layer));
    copy.import_positions(length, held_from, one.s.quantized());
    for (int layer = 0; layer < 3; ++layer) {
      const int64_t from = std::min(length, held_from[static_cast<size_t>(layer)]);
      const int64_t kept = std::min(from, one.s.keep(layer == 1 ? 1 : 0));
      copy_rows(one.s, copy, layer, 0, kept);
      copy_rows(one.s, copy, layer, from, length - from);
    }
    Tracked again(std::move(copy), one.rows(), random_);
    ASSERT_NO_FATAL_FAILURE(again.check());
    ASSERT_EQ(again.s.bytes(), one.s.bytes());
    ASSERT_NO_FATAL_FAILURE(again.append(70));
    ASSERT_NO_FATAL_FAILURE(again.check());
  }
}

TEST(KvSequence, ImportsTheLastRowsOfAWindow) {
  // As a ring buffer of mlx-lm holds them: the kept start, and the rows of the window alone.
  std::mt19937 random(3);
  const auto pool = std::make_shared<KvPool>(groups(), 0);
  const KvOptions options{.max_size = 90, .keep = 4};
  Tracked one(pool, options, random);
  ASSERT_NO_FATAL_FAILURE(one.append(500));
  KvSequence copy(pool, options);
  const std::vector<int64_t> held_from = {500 - 86, 500 - 100, 500 - 86};
  copy.import_positions(500, held_from, false);
  for (int layer = 0; layer < 3; ++layer) {
    const int64_t from = held_from[static_cast<size_t>(layer)];
    if (layer != 1) copy_rows(one.s, copy, layer, 0, 4);
    copy_rows(one.s, copy, layer, from, 500 - from);
    EXPECT_THROW(copy_rows(one.s, copy, layer, from - 1, 2), Error);
  }
  Tracked again(std::move(copy), one.rows(), random);
  ASSERT_NO_FATAL_FAILURE(again.check());
  EXPECT_TRUE(again.s.can_trim(1));   // the query at 499 reads from 499 − 85 = 414 on
  EXPECT_FALSE(again.s.can_trim(2));  // the query at 498 would read 413
  ASSERT_NO_FATAL_FAILURE(again.append(90));
  ASSERT_NO_FATAL_FAILURE(again.check());

  KvSequence refused(pool, options);
  EXPECT_THROW(refused.import_positions(500, std::vector<int64_t>{416, 400, 414}, false), Error);
  EXPECT_THROW(refused.import_positions(500, std::vector<int64_t>{0, 402, 0}, false), Error);
  EXPECT_THROW(refused.import_positions(500, std::vector<int64_t>{0, 0, 0}, true), Error);
  EXPECT_EQ(refused.length(), 0);
  EXPECT_EQ(refused.bytes(), 0);
}

TEST(KvSequence, IsAsBeforeWhenTheBudgetIsSpent) {
  std::mt19937 random(5);
  for (const KvOptions& options : {KvOptions{}, KvOptions{.bits = 8, .group_size = 32, .quantized_start = 130}}) {
    const int64_t block = groups()[0].block_bytes() + groups()[1].block_bytes();
    const auto pool = std::make_shared<KvPool>(groups(), 4 * block);
    Tracked one(pool, options, random);
    ASSERT_NO_FATAL_FAILURE(one.append(130));
    const int64_t bytes = one.s.bytes();
    EXPECT_THROW(one.s.prepare(300), Error);
    EXPECT_EQ(one.s.length(), 130);
    EXPECT_EQ(one.s.bytes(), bytes);
    EXPECT_EQ(pool->bytes_in_use(), bytes);
    ASSERT_NO_FATAL_FAILURE(one.check());
  }
}

TEST(KvPool, KeepsFreedBlocksOfAllFormatsWithinItsBudget) {
  const int64_t block = groups()[0].block_bytes();
  KvPool pool(groups(), 3 * block);
  std::vector<KvPool::BlockId> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(pool.allocate(0));
  EXPECT_THROW(pool.allocate(1), Error);
  for (const auto id : blocks) pool.release(id);
  EXPECT_EQ(pool.bytes_in_use(), 0);
  EXPECT_EQ(pool.bytes_held(), 3 * block);
  blocks.assign(1, pool.allocate(0));  // one of them again
  EXPECT_EQ(pool.bytes_held(), 3 * block);
  while (pool.bytes_in_use() + groups()[0].block_bytes(4, 32) <= 3 * block) {
    blocks.push_back(pool.allocate(0, 4, 32));
    EXPECT_LE(pool.bytes_held(), 3 * block);
  }
  EXPECT_GT(blocks.size(), 5u);  // codes are a third of floats and less
  pool.give_back();
  EXPECT_EQ(pool.bytes_held(), pool.bytes_in_use());
  for (const auto id : blocks) pool.release(id);
  pool.give_back();
  EXPECT_EQ(pool.bytes_held(), 0);
}

TEST(KvOptions, AreRefusedWithTheReason) {
  const auto message = [](const KvOptions& options) -> std::string {
    try {
      check_kv_options(options, groups());
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.max_size = 5, .keep = 4, .bits = 4, .group_size = 32}), "");
  EXPECT_NE(message({.max_size = -1}).find("max_kv_size"), std::string::npos);
  EXPECT_NE(message({.max_size = 4, .keep = 4}).find("keep"), std::string::npos);
  EXPECT_NE(message({.max_size = 4, .keep = -1}).find("keep"), std::string::npos);
  EXPECT_NE(message({.bits = 2}).find("kv_bits"), std::string::npos);
  EXPECT_NE(message({.bits = 8, .group_size = 48}).find("32, 64 or 128"), std::string::npos);
  EXPECT_NE(message({.bits = 8, .group_size = 64}).find("layer 1"), std::string::npos);
  EXPECT_NE(message({.bits = 8, .group_size = 32, .quantized_start = -1}).find("quantized_kv_start"),
            std::string::npos);
}

}  // namespace
}  // namespace mlxlm::nn
