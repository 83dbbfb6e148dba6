// Attention: against double precision, and the same bits however the queries and keys are split.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/test_effort.h"
#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace mlxlm {
namespace {

using Values = std::vector<float>;

struct Case {
  int64_t head_dim = 64, value_dim = 64, n_rep = 3, n_queries = 1, position = 0, window = 0;
  float softcap = 0;
  DType dtype = DType::f16;
  bool infinite_last_value = false;  ///< the newest key's V is +inf: it must reach the last query only
  int64_t keep = 0;                  ///< has an effect with a window
  int bits = 0, group_size = 0;      ///< of KvLayout

  bool sees(int64_t query, int64_t key) const {
    return key <= query && (window == 0 || key < keep || key > query - window);
  }
  /// Whether one of `count` queries sees a key of the partition that starts at `first_key`.
  bool sees_any(int64_t query, int64_t count, int64_t first_key) const {
    for (int64_t key = first_key; key < first_key + kAttentionPartition; ++key) {
      for (int64_t q = query; q < query + count; ++q) {
        if (sees(q, key)) return true;
      }
    }
    return false;
  }
};

/// Queries, and one layer's blocks written by kv_store. Slots never written hold NaN; blocks outside every window are
/// null. Two KV heads; the task is the second one's.
class Sequence {
 public:
  Sequence(const Case& c, TestRandom& random)
      : c_(c), layout_{2, c.head_dim, c.value_dim, c.dtype, c.bits, c.group_size} {
    const int64_t end = c.position + c.n_queries;
    keys_.resize(static_cast<size_t>((end + 63) / 64));
    pointers_.resize(keys_.size(), nullptr);
    for (int64_t p = 0; p < end; ++p) {
      if (p < c.position && !c.sees(c.position, p)) continue;
      std::vector<std::byte>& block = keys_[static_cast<size_t>(p / 64)];
      if (block.empty()) block.assign(static_cast<size_t>(layout_.layer_bytes()), std::byte{0xff});
      pointers_[static_cast<size_t>(p / 64)] = block.data();
      const Values k = random.vector(2 * c.head_dim);
      Values v = random.vector(2 * c.value_dim);
      if (c.infinite_last_value && p == end - 1) v.back() = INFINITY;
      select_kernels().kv_store(layout_, block.data(), p % 64, k.data(), v.data());
      std::vector<float>& row = rows_[p];
      row.resize(static_cast<size_t>(2 * (c.head_dim + c.value_dim)));
      select_kernels().kv_load(layout_, block.data(), p % 64, row.data(), row.data() + 2 * c.head_dim);
    }
    q_ = random.vector(c.n_queries * stride(), 1.5f);
  }

  int64_t stride() const { return c_.n_rep * c_.head_dim + 5; }
  int64_t out_stride() const { return c_.n_rep * c_.value_dim + 3; }

  /// Queries [first, first + count).
  AttentionTask task(int64_t first, int64_t count, Values& out) const {
    AttentionTask task;
    task.q = q_.data() + first * stride();
    task.q_stride = stride();
    task.n_queries = count;
    task.n_rep = c_.n_rep;
    task.position = c_.position + first;
    task.window = c_.window;
    task.softcap = c_.softcap;
    task.head_dim = c_.head_dim;
    task.value_dim = c_.value_dim;
    task.keep = c_.keep;
    task.dtype = c_.dtype;
    task.bits = c_.bits;
    task.group_size = c_.group_size;
    task.blocks = pointers_.data();
    task.head_offset = layout_.head_bytes();
    task.out = out.data() + first * out_stride();
    task.out_stride = out_stride();
    return task;
  }
  Values output() const { return Values(static_cast<size_t>(c_.n_queries * out_stride()), -7.0f); }

  /// Output dim d of head r of query i, in double from the stored keys and values.
  Values reference() const {
    Values out = output();
    for (int64_t i = 0; i < c_.n_queries; ++i) {
      for (int64_t r = 0; r < c_.n_rep; ++r) reference_row(i, r, out.data() + i * out_stride() + r * c_.value_dim);
    }
    return out;
  }

 private:
  void reference_row(int64_t i, int64_t r, float* out) const {
    const int64_t position = c_.position + i;
    std::vector<double> scores(static_cast<size_t>(position) + 1), values(static_cast<size_t>(c_.value_dim));
    const float* q = q_.data() + i * stride() + r * c_.head_dim;
    double largest = -INFINITY, sum = 0;
    for (int64_t p = 0; p <= position; ++p) {
      if (!c_.sees(position, p)) continue;
      const float* k = key(p);
      double score = 0;
      for (int64_t d = 0; d < c_.head_dim; ++d) score += static_cast<double>(q[d]) * k[d];
      if (c_.softcap != 0) score = c_.softcap * std::tanh(score / c_.softcap);
      scores[static_cast<size_t>(p)] = score;
      largest = std::max(largest, score);
    }
    for (int64_t p = 0; p <= position; ++p) {
      if (!c_.sees(position, p)) continue;
      const double weight = std::exp(scores[static_cast<size_t>(p)] - largest);
      sum += weight;
      const float* v = value(p);
      double* to = values.data();
      for (int64_t d = 0; d < c_.value_dim; ++d) to[d] += weight * static_cast<double>(v[d]);
    }
    for (int64_t d = 0; d < c_.value_dim; ++d) out[d] = static_cast<float>(values[static_cast<size_t>(d)] / sum);
  }
  // The second head's rows as kv_load gives them (kv_rows_test checks that).
  const float* key(int64_t p) const { return rows_.at(p).data() + c_.head_dim; }
  const float* value(int64_t p) const { return rows_.at(p).data() + 2 * c_.head_dim + c_.value_dim; }

  Case c_;
  KvLayout layout_;
  std::vector<std::vector<std::byte>> keys_;
  std::vector<const std::byte*> pointers_;
  std::map<int64_t, std::vector<float>> rows_;  ///< by position: k [2, head_dim], v [2, value_dim]
  Values q_;
};

Values whole(const Kernels& kernels, const Sequence& s, const Case& c) {
  std::vector<std::byte> scratch(kScratchBytes);
  Values out = s.output();
  kernels.attention(s.task(0, c.n_queries, out), scratch.data());
  return out;
}

/// The queries in pieces of random sizes, each by attention() or by partitions in any order and a merge.
Values in_pieces(const Kernels& kernels, const Sequence& s, const Case& c, TestRandom& random) {
  std::vector<std::byte> scratch(kScratchBytes);
  Values out = s.output();
  for (int64_t first = 0; first < c.n_queries;) {
    const int64_t count = random.integer(1, random.integer(1, c.n_queries - first));
    const AttentionTask task = s.task(first, count, out);
    first += count;
    if (random.integer(0, 3) == 0) {
      kernels.attention(task, scratch.data());
      continue;
    }
    std::vector<int64_t> partitions;
    for (int64_t p = 0; p * kAttentionPartition < task.position + count; ++p) {
      if (c.sees_any(task.position, count, p * kAttentionPartition)) partitions.push_back(p);
    }
    const size_t floats = kernels.attention_partial_floats(task);
    Values partials(floats * partitions.size(), NAN);
    for (size_t i = partitions.size(); i-- > 0;) {
      kernels.attention_partition(task, partitions[i], partials.data() + i * floats, scratch.data());
    }
    kernels.attention_merge(task, partials.data(), partitions.data(), static_cast<int64_t>(partitions.size()));
  }
  return out;
}

/// Scores are sums of head_dim products of at most 1.5: an error of some units of 2^-24 · head_dim in each changes a
/// weight by as much, relatively, and the values are at most 1.
void check(const Case& c, TestRandom& random) {
  SCOPED_TRACE(testing::Message() << "head_dim " << c.head_dim << " value_dim " << c.value_dim << " n_rep " << c.n_rep
                                  << " n_queries " << c.n_queries << " position " << c.position << " window "
                                  << c.window << " keep " << c.keep << " softcap " << c.softcap << " "
                                  << dtype_name(c.dtype) << " bits " << c.bits << " group " << c.group_size);
  const Sequence s(c, random);
  const Values first = whole(*available_kernels().front(), s, c);
  for (const Kernels* kernels : available_kernels()) {
    ASSERT_EQ(difference(first, whole(*kernels, s, c)), "") << kernels->isa;
    ASSERT_EQ(difference(first, in_pieces(*kernels, s, c, random)), "") << kernels->isa << ", in pieces";
  }
  const Values reference = s.reference();
  const double tolerance = 1e-6 + 1e-7 * static_cast<double>(c.head_dim);
  for (size_t i = 0; i < first.size(); ++i) {
    if (std::isinf(reference[i])) {
      ASSERT_EQ(first[i], reference[i]);
      continue;
    }
    ASSERT_LE(std::fabs(first[i] - reference[i]), tolerance) << i;
  }
}

class Attention : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Attention, ::testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& param) { return dtype_name(param.param); });

TEST_P(Attention, OfEveryHeadSize) {
  TestRandom random(21);
  for (int64_t head_dim : {8, 16, 24, 32, 64, 80, 96, 128, 256}) {
    check(
        {.head_dim = head_dim, .value_dim = head_dim, .n_rep = 3, .n_queries = 5, .position = 130, .dtype = GetParam()},
        random);
    check({.head_dim = head_dim, .value_dim = 40, .n_rep = 4, .n_queries = 1, .position = 63, .dtype = GetParam()},
          random);
  }
}

TEST_P(Attention, OfEveryGroupOfHeads) {
  TestRandom random(22);
  for (int64_t n_rep = 1; n_rep <= 16; ++n_rep) {
    check({.head_dim = 32, .value_dim = 16, .n_rep = n_rep, .n_queries = 7, .position = 60, .dtype = GetParam()},
          random);
  }
  check({.head_dim = 16, .value_dim = 16, .n_rep = 71, .n_queries = 4, .position = 250, .dtype = GetParam()}, random);
}

TEST_P(Attention, AtRandomPositionsAndWindows) {
  TestRandom random(23);
  for (int i = 0; i < cases_of(15); ++i) {
    Case c;
    c.head_dim = 8 * random.integer(1, 9);
    c.value_dim = 8 * random.integer(1, 9);
    c.n_rep = random.integer(1, 8);
    c.n_queries = random.integer(1, random.integer(1, 90));
    c.position = random.integer(0, 1) * random.integer(0, 800);
    c.window = random.integer(0, 1) * random.integer(1, 400);
    c.softcap = random.integer(0, 2) == 0 ? 5.0f : 0.0f;
    c.dtype = GetParam();
    c.infinite_last_value = random.integer(0, 3) == 0;
    check(c, random);
  }
}

TEST_P(Attention, WithAKeptStart) {
  TestRandom random(27);
  // The window still touches the kept keys, has just left them, and is blocks and partitions away.
  for (int64_t position : {0, 5, 29, 33, 34, 35, 90, 330, 700}) {
    check({.head_dim = 16,
           .value_dim = 16,
           .n_queries = 6,
           .position = position,
           .window = 30,
           .dtype = GetParam(),
           .keep = 4},
          random);
  }
  for (int i = 0; i < cases_of(15); ++i) {
    Case c;
    c.head_dim = 8 * random.integer(1, 9);
    c.value_dim = 8 * random.integer(1, 9);
    c.n_rep = random.integer(1, 8);
    c.n_queries = random.integer(1, random.integer(1, 150));
    c.position = random.integer(0, 900);
    c.window = random.integer(1, random.integer(1, 400));
    c.keep = random.integer(0, random.integer(0, 3) == 0 ? 300 : 70);
    c.softcap = random.integer(0, 4) == 0 ? 5.0f : 0.0f;
    c.dtype = GetParam();
    c.infinite_last_value = random.integer(0, 3) == 0;
    check(c, random);
  }
}

TEST_P(Attention, AKeptStartThatIsNotLeftBehindChangesNothing) {
  TestRandom random(28);
  for (const Kernels* kernels : available_kernels()) {
    const Case c{.n_queries = 90, .position = 20, .dtype = GetParam()};
    const Sequence s(c, random);
    const Values expected = whole(*kernels, s, c);
    std::vector<std::byte> scratch(kScratchBytes);
    Values out = s.output();
    AttentionTask task = s.task(0, c.n_queries, out);
    task.window = 106;  // the last query, at 109, sees keys from 4 on and the 4 kept ones
    task.keep = 4;
    kernels->attention(task, scratch.data());
    EXPECT_EQ(difference(expected, out), "") << kernels->isa;
  }
}

TEST_P(Attention, OfQuantisedKeysAndValues) {
  TestRandom random(29);
  for (int bits : {4, 8}) {
    for (int group_size : {32, 64, 128}) {
      check({.head_dim = 128,
             .value_dim = group_size,
             .n_queries = 3,
             .position = 127,
             .dtype = GetParam(),
             .bits = bits,
             .group_size = group_size},
            random);
      check({.head_dim = group_size,
             .value_dim = 128,
             .n_queries = all_combinations() ? 80 : 20,
             .position = 100,
             .dtype = GetParam(),
             .bits = bits,
             .group_size = group_size},
            random);
    }
  }
  for (int i = 0; i < cases_of(8); ++i) {
    Case c;
    c.bits = random.integer(0, 1) == 0 ? 4 : 8;
    c.group_size = 32;
    c.head_dim = 32 * random.integer(1, 4);
    c.value_dim = 32 * random.integer(1, 4);
    c.n_rep = random.integer(1, 8);
    c.n_queries = random.integer(1, random.integer(1, 90));
    c.position = random.integer(0, 800);
    c.window = random.integer(0, 1) * random.integer(1, 400);
    c.keep = random.integer(0, 70);
    c.softcap = random.integer(0, 2) == 0 ? 5.0f : 0.0f;
    c.dtype = GetParam();
    check(c, random);
  }
}

TEST_P(Attention, OfAPromptLongerThanATile) {
  TestRandom random(24);
  check({.n_rep = 3, .n_queries = 150, .position = 200, .dtype = GetParam()}, random);
  check({.head_dim = 128, .value_dim = 128, .n_rep = 1, .n_queries = 300, .window = 100, .dtype = GetParam()}, random);
}

TEST_P(Attention, NanInAQueryStaysInItsRow) {
  for (const Kernels* kernels : available_kernels()) {
    TestRandom random(25);
    const Case c{.n_rep = 2, .n_queries = 4, .position = 70, .dtype = GetParam()};
    const Sequence s(c, random);
    Values out = s.output(), clean = whole(*kernels, s, c);
    AttentionTask task = s.task(0, 4, out);
    Values q(task.q, task.q + 4 * s.stride());
    q[static_cast<size_t>(s.stride() + 3)] = NAN;  // head 0 of query 1
    task.q = q.data();
    std::vector<std::byte> scratch(kScratchBytes);
    kernels->attention(task, scratch.data());
    for (int64_t i = 0; i < s.out_stride() * 4; ++i) {
      const bool touched = i >= s.out_stride() && i < s.out_stride() + c.value_dim;
      const size_t j = static_cast<size_t>(i);
      EXPECT_TRUE(touched ? std::isnan(out[j]) : same_bits(out[j], clean[j])) << i;
    }
  }
}

TEST_P(Attention, StoresRoundedKeysByDimensionAndValuesByToken) {
  TestRandom random(26);
  const KvLayout layout{3, 24, 16, GetParam()};
  Values k = random.vector(3 * 24, 3), v = random.vector(3 * 16, 1e-5f);
  k[0] = 1e30f, k[1] = -65'519.99f, k[2] = 65'520.0f, k[3] = 3e-8f, k[4] = -2.9e-8f, k[5] = 1.0f + 0x1p-11f;
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> layer(static_cast<size_t>(layout.layer_bytes()), std::byte{0x55});
    kernels->kv_store(layout, layer.data(), 37, k.data(), v.data());
    const int64_t size = static_cast<int64_t>(dtype_size(layout.dtype));
    int64_t changed = 0;
    const auto expect = [&](int64_t head, int64_t index, float value) {
      const std::byte* p = layer.data() + head * layout.head_bytes() + index * size;
      const uint16_t word = layout.dtype == DType::f32 ? uint16_t{0} : nearest_element(layout.dtype, value);
      EXPECT_EQ(std::memcmp(p, size == 4 ? static_cast<const void*>(&value) : &word, static_cast<size_t>(size)), 0)
          << kernels->isa << " " << value;
      changed += size;
    };
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t d = 0; d < 24; ++d) expect(h, d * 64 + 37, k[static_cast<size_t>(h * 24 + d)]);
      for (int64_t d = 0; d < 16; ++d) expect(h, 24 * 64 + 37 * 16 + d, v[static_cast<size_t>(h * 16 + d)]);
    }
    const int64_t kept = std::count(layer.begin(), layer.end(), std::byte{0x55});
    EXPECT_GE(kept, layout.layer_bytes() - changed);
  }
}

TEST_P(Attention, ReadsBackWhatItStores) {
  // Every pattern of the 16-bit types survives: identity attention over one key returns its value.
  const DType dtype = GetParam();
  if (dtype == DType::f32) return;
  for (const Kernels* kernels : available_kernels()) {
    for (uint32_t base = 0; base < 65'536; base += 256) {
      const KvLayout layout{1, 8, 256, dtype};
      std::vector<std::byte> layer(static_cast<size_t>(layout.layer_bytes()));
      Values v(256), k(8, 0.0f), q(8, 0.0f), out(256);
      for (uint32_t i = 0; i < 256; ++i) {
        const uint16_t word = static_cast<uint16_t>(base + i);
        v[i] = static_cast<float>(element_value(dtype, reinterpret_cast<const std::byte*>(&word)));
      }
      kernels->kv_store(layout, layer.data(), 0, k.data(), v.data());
      const std::byte* block = layer.data();
      AttentionTask task;
      task.q = q.data();
      task.n_queries = 1;
      task.head_dim = 8;
      task.value_dim = 256;
      task.dtype = dtype;
      task.blocks = &block;
      task.out = out.data();
      std::vector<std::byte> scratch(kScratchBytes);
      kernels->attention(task, scratch.data());
      for (uint32_t i = 0; i < 256; ++i) {
        EXPECT_TRUE(out[i] == v[i] || (std::isnan(out[i]) && std::isnan(v[i]))) << base + i << " " << out[i];
      }
    }
  }
}

}  // namespace
}  // namespace mlxlm
