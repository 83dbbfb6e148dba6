// Attention of one KV head over blocks of 64 keys.
//
// A row is one head of one query: row g is head g mod n_rep of query g / n_rep. Rows never mix, and which keys a row
// sees follows from its query's position alone, so any tiling of rows gives the same bits. Both products of a block are
// [rows] × [columns] with one ordered chain per element: lanes are tokens in the scores and value dims in the output,
// so nothing is summed across lanes.

/// Keys [lo, hi) of a block.
struct Visible {
  int64_t lo, hi;
  MLXLM_INLINE bool empty() const { return lo >= hi; }
};

/// The runs of keys that a query may see: up to its kept start, and its window. Where they touch, all is in the first.
enum Visit { kFirstVisit, kSecondVisit };

/// What a query at `position` sees in one visit of `count` keys from `first`.
MLXLM_INLINE Visible visible_keys(const AttentionTask& task, int64_t position, int64_t first, int64_t count,
                                  Visit visit) {
  const int64_t end = smaller(count, position + 1 - first);
  const int64_t kept = task.keep - first;
  const int64_t oldest = position - task.window + 1 - first;
  if (task.window == 0 || (kept > 0 && oldest <= kept)) return {0, visit == kFirstVisit ? end : 0};
  if (kept <= 0) return {larger(0, oldest), visit == kFirstVisit ? end : 0};
  if (visit == kFirstVisit) return {0, smaller(kept, end)};
  return {oldest, end};
}

/// Steps over the blocks, or the partitions, of `size` keys that no query from `position` on sees.
struct Walk {
  int64_t kept;    ///< those below it hold kept keys
  int64_t oldest;  ///< the first that the window of `position` reaches

  MLXLM_INLINE Walk(const AttentionTask& task, int64_t position, int64_t size)
      : kept(task.window == 0 ? 0 : (task.keep + size - 1) / size),
        oldest(task.window == 0 ? 0 : larger(0, position - task.window + 1) / size) {}
  /// The first to visit from `index` on.
  MLXLM_INLINE int64_t from(int64_t index) const { return index < kept ? index : larger(index, oldest); }
};

constexpr int64_t kCacheLine = 64;  // bytes
/// A core that waits for many lines drops some prefetches; a second one, this many rows of keys or values before their
/// use, brings those.
constexpr int64_t kRowsAgain = 16;

/// Rows worked on together: 6 rows × 2 vectors, or 3 × 4, of accumulators leave room for the operands in 16 registers.
constexpr int64_t kRowGroup = 6;

/// acc[r][c] = fma chain over k in [lo, hi) of a[r·a_stride + k] · b[k][c], added to out·factor. B's rows have
/// `b_stride` elements. Prefetched are what is read next, from `ahead` on, and B itself once more (nothing if null).
template <class Element, int rows, int vectors>
MLXLM_INLINE void chain_tile(const float* a, int64_t a_stride, const std::byte* b, int64_t b_stride, int64_t lo,
                             int64_t hi, const float* factor, float* out, int64_t out_stride, const std::byte* ahead) {
  F8 acc[rows][vectors];
  MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
    MLXLM_UNROLL for (int c = 0; c < vectors; ++c) {
      acc[r][c] = factor == nullptr ? splat(0) : load_f32(out + r * out_stride + 8 * c) * splat(factor[r]);
    }
  }
  constexpr int64_t step = vectors * 8 * Element::kSize;
  constexpr bool kPrefetch = Element::kSize == 2 || rows <= 3;  // float32 with more rows is bound by arithmetic
  for (int64_t k = lo; k < hi; ++k) {
    const std::byte* from = b + k * b_stride * Element::kSize;
    if (kPrefetch && ahead != nullptr) {
      __builtin_prefetch(ahead + k * step);
      __builtin_prefetch(from + kRowsAgain * b_stride * Element::kSize);
    }
    // The fewer of the two stay in registers, so that 12 accumulators and their operands fit 16.
    if constexpr (rows < vectors) {
      F8 value[rows];
      MLXLM_UNROLL for (int r = 0; r < rows; ++r) value[r] = splat(a[r * a_stride + k]);
      MLXLM_UNROLL for (int c = 0; c < vectors; ++c) {
        const F8 column = Element::load(from + 8 * c * Element::kSize);
        MLXLM_UNROLL for (int r = 0; r < rows; ++r) acc[r][c] = fma(value[r], column, acc[r][c]);
      }
    } else {
      F8 column[vectors];
      MLXLM_UNROLL for (int c = 0; c < vectors; ++c) column[c] = Element::load(from + 8 * c * Element::kSize);
      MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
        const F8 value = splat(a[r * a_stride + k]);
        MLXLM_UNROLL for (int c = 0; c < vectors; ++c) acc[r][c] = fma(value, column[c], acc[r][c]);
      }
    }
  }
  MLXLM_UNROLL for (int r = 0; r < rows; ++r) {
    MLXLM_UNROLL for (int c = 0; c < vectors; ++c) store_f32(out + r * out_stride + 8 * c, acc[r][c]);
  }
}

/// chain_tile over `width` columns, a multiple of 8: as wide as the registers allow for this number of rows.
template <class Element, int rows>
MLXLM_NOINLINE void chain_rows(const float* a, int64_t a_stride, const std::byte* b, int64_t width, int64_t b_stride,
                               int64_t lo, int64_t hi, const float* factor, float* out, int64_t out_stride,
                               const std::byte* ahead) {
  constexpr int wide = rows <= 3 ? 4 : 2;
  int64_t c = 0;
  for (; c + 8 * wide <= width; c += 8 * wide) {
    const std::byte* next = ahead == nullptr ? nullptr : ahead + c * (hi - lo) * Element::kSize;
    chain_tile<Element, rows, wide>(a, a_stride, b + c * Element::kSize, b_stride, lo, hi, factor, out + c, out_stride,
                                    next);
  }
  for (; c < width; c += 8) {
    chain_tile<Element, rows, 1>(a, a_stride, b + c * Element::kSize, b_stride, lo, hi, factor, out + c, out_stride,
                                 nullptr);
  }
}

template <class Element>
MLXLM_INLINE void chain(int64_t rows, const float* a, int64_t a_stride, const std::byte* b, int64_t width,
                        int64_t b_stride, int64_t lo, int64_t hi, const float* factor, float* out, int64_t out_stride,
                        const std::byte* ahead) {
  const auto call = [&](auto* f) MLXLM_INLINE_LAMBDA {
    f(a, a_stride, b, width, b_stride, lo, hi, factor, out, out_stride, ahead);
  };
  switch (rows) {
    case 1:
      return call(chain_rows<Element, 1>);
    case 2:
      return call(chain_rows<Element, 2>);
    case 3:
      return call(chain_rows<Element, 3>);
    case 4:
      return call(chain_rows<Element, 4>);
    case 5:
      return call(chain_rows<Element, 5>);
    default:
      return call(chain_rows<Element, 6>);
  }
}

/// Softmax state of some rows: outputs not yet divided by their sums, maxima, sums.
struct RowState {
  float* out;  ///< [rows, value_dim]
  float* m;    ///< [rows]
  float* l;    ///< [rows]
};

MLXLM_INLINE void reset(const RowState& state, int64_t rows, int64_t value_dim) {
  for (int64_t i = 0; i < rows * value_dim; i += 8) store_f32(state.out + i, splat(0));
  for (int64_t r = 0; r < rows; ++r) {
    state.m[r] = -__builtin_inff();
    state.l[r] = 0;
  }
}

MLXLM_INLINE M8 visible_mask(Visible see, int j) {
  const F8 index = lane_index() + splat(static_cast<float>(8 * j));
  const F8 lo = splat(static_cast<float>(see.lo) - 0.5f), hi = splat(static_cast<float>(see.hi));
  return less(lo, index) & less(index, hi);
}

/// Scores s [rows, 64] become weights; updates m and l, and gives each row's factor for what its output held before.
/// Rows that see nothing keep their state (factor 1, and their weights are not to be used). What lies from `ahead` on
/// is prefetched, a line for each vector (nothing if null), so that the memory does not rest meanwhile.
MLXLM_NOINLINE void softmax_rows(int64_t rows, const Visible* see, float cap, float* s, float* m, float* l,
                                 float* factor, const std::byte* ahead) {
  const F8 lowest = splat(-__builtin_inff());
  alignas(32) float before[8] = {}, after[8] = {}, ratio[8];
  for (int64_t r = 0; r < rows; ++r) {
    before[r] = after[r] = m[r];
    if (see[r].empty()) continue;
    float* row = s + r * kKvBlockTokens;
    const bool all = see[r].lo == 0 && see[r].hi == kKvBlockTokens;
    F8 best = lowest;
    for (int j = 0; j < 8; ++j) {
      F8 v = load_f32(row + 8 * j);
      if (cap != 0) v = soft_capped(v, cap);
      if (!all) v = select(visible_mask(see[r], j), v, lowest);
      if (cap != 0 || !all) store_f32(row + 8 * j, v);
      best = max(v, best);
    }
    const float block = max_tree(best);
    after[r] = block > m[r] ? block : m[r];
    m[r] = after[r];
  }
  store_f32(ratio, exp_limited(load_f32(before) - load_f32(after)));
  for (int64_t r = 0; r < rows; ++r) {
    factor[r] = 1;
    if (see[r].empty()) continue;
    float* row = s + r * kKvBlockTokens;
    const F8 top = splat(after[r]);
    F8 sum = splat(0);
    for (int j = 0; j < 8; ++j) {
      const F8 p = exp_limited(load_f32(row + 8 * j) - top);  // 0 where invisible: −inf there
      sum = sum + p;
      store_f32(row + 8 * j, p);
      if (ahead != nullptr) __builtin_prefetch(ahead + (8 * r + j) * kCacheLine);
    }
    factor[r] = ratio[r];
    l[r] = fma(l[r], ratio[r], sum_tree(sum));
  }
}

/// out = out·factor + s · V for at most kRowGroup rows. A weight is multiplied only with keys its row sees: 0 · V would
/// be NaN for an infinite value of a later position.
template <class Element>
MLXLM_INLINE void add_values(int64_t rows, const Visible* see, const float* s, const std::byte* values,
                             int64_t value_dim, float* factor, float* out, const std::byte* ahead) {
  const auto part = [&](int64_t first, int64_t count, int64_t lo, int64_t hi, const std::byte* next)
                        MLXLM_INLINE_LAMBDA {
                          if (lo >= hi) return;
                          chain<Element>(count, s + first * kKvBlockTokens, kKvBlockTokens, values, value_dim,
                                         value_dim, lo, hi, factor + first, out + first * value_dim, value_dim, next);
                          for (int64_t r = first; r < first + count; ++r) factor[r] = 1;
                        };
  Visible common = see[0];
  bool same = true;
  for (int64_t r = 1; r < rows; ++r) {
    same = same && see[r].lo == see[0].lo && see[r].hi == see[0].hi;
    common = {larger(common.lo, see[r].lo), smaller(common.hi, see[r].hi)};
  }
  if (same) return part(0, rows, common.lo, common.hi, ahead);
  if (common.empty()) {
    for (int64_t r = 0; r < rows; ++r) part(r, 1, see[r].lo, see[r].hi, nullptr);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) part(r, 1, see[r].lo, common.lo, nullptr);
  part(0, rows, common.lo, common.hi, ahead);
  for (int64_t r = 0; r < rows; ++r) part(r, 1, common.hi, see[r].hi, nullptr);
}

/// Rows [first, first + rows) of a task and the scratch they need.
struct RowTile {
  int64_t first, rows;
  float* q;       ///< [rows, head_dim]
  float* s;       ///< [rows, 64]
  float* keys;    ///< [head_dim, 64]: a block in float32
  float* values;  ///< [64, value_dim]
  RowState state;

  MLXLM_INLINE int64_t position(const AttentionTask& task, int64_t row) const {
    return task.position + (first + row) / task.n_rep;
  }
};

/// One visit of a block for all rows of a tile. The values are prefetched during the scores; `next`, the keys of the
/// block likely read next (or null), during the rest. make_values() is called when the scores are done.
template <class Element, class Function>
MLXLM_INLINE void visit_block(const AttentionTask& task, const RowTile& tile, int64_t block, Visit visit,
                              const std::byte* keys, const std::byte* values, const std::byte* next,
                              Function make_values) {
  const int64_t head_dim = task.head_dim, value_dim = task.value_dim;
  const bool in_scratch = values == reinterpret_cast<const std::byte*>(tile.values);  // so in the cache
  const auto visible = [&](int64_t row, int64_t count, Visible* see) MLXLM_INLINE_LAMBDA {
    Visible all = {kKvBlockTokens, 0};
    for (int64_t r = 0; r < count; ++r) {
      see[r] = visible_keys(task, tile.position(task, row + r), block * kKvBlockTokens, kKvBlockTokens, visit);
      if (see[r].empty()) continue;
      all = {smaller(all.lo, see[r].lo), larger(all.hi, see[r].hi)};
    }
    return all;
  };
  for (int64_t row = 0; row < tile.rows; row += kRowGroup) {
    Visible see[kRowGroup];
    const int64_t count = smaller(kRowGroup, tile.rows - row);
    const Visible all = visible(row, count, see);
    if (all.empty()) continue;
    // Whole tiles of columns: what is computed from unused slots is masked later.
    const int64_t lo = all.lo / 32 * 32, hi = (all.hi + 31) / 32 * 32;
    chain<Element>(count, tile.q + row * head_dim, head_dim, keys + lo * Element::kSize, hi - lo, kKvBlockTokens, 0,
                   head_dim, nullptr, tile.s + row * kKvBlockTokens + lo, kKvBlockTokens,
                   row == 0 && !in_scratch ? values : nullptr);
  }
  make_values();
  for (int64_t row = 0; row < tile.rows; row += kRowGroup) {
    Visible see[kRowGroup];
    float factor[kRowGroup];
    const int64_t count = smaller(kRowGroup, tile.rows - row);
    if (visible(row, count, see).empty()) continue;
    float* s = tile.s + row * kKvBlockTokens;
    const std::byte* ahead = row == 0 ? next : nullptr;
    softmax_rows(count, see, task.softcap, s, tile.state.m + row, tile.state.l + row, factor, ahead);
    add_values<Element>(count, see, s, values, value_dim, factor, tile.state.out + row * value_dim, ahead);
  }
}

/// Converts n values, a multiple of 8, and prefetches `ahead`.
template <class Element>
MLXLM_INLINE void convert(const std::byte* from, int64_t n, float* to, const std::byte* ahead) {
  for (int64_t i = 0; i < n; i += 32) {
    if (ahead != nullptr) __builtin_prefetch(ahead + i * Element::kSize);
    for (int64_t j = i; j < smaller(i + 32, n); j += 8) store_f32(to + j, Element::load(from + j * Element::kSize));
  }
}

/// One block for all rows of a tile. `next` and make_values as in visit_block.
template <class Element, class Function>
MLXLM_INLINE void visit_runs(const AttentionTask& task, const RowTile& tile, int64_t block, const std::byte* keys,
                             const std::byte* values, const std::byte* next, Function make_values) {
  // Only a block with kept keys can be seen in two runs, and only by rows whose window has left the kept start.
  const int64_t newest = tile.position(task, tile.rows - 1);
  const bool two_runs = task.window != 0 && block * kKvBlockTokens < task.keep && newest - task.window + 1 > task.keep;
  for (int visit = kFirstVisit; visit <= (two_runs ? kSecondVisit : kFirstVisit); ++visit) {
    visit_block<Element>(task, tile, block, static_cast<Visit>(visit), keys, values,
                         visit == kFirstVisit ? next : nullptr, make_values);
  }
}

/// One block of elements for all rows of a tile.
template <class Element>
MLXLM_NOINLINE void attend_block(const AttentionTask& task, const RowTile& tile, int64_t block, const std::byte* keys,
                                 const std::byte* values, const std::byte* next) {
  visit_runs<Element>(task, tile, block, keys, values, next, []() MLXLM_INLINE_LAMBDA {});
}

/// One block of codes for all rows of a tile, by way of its values in float32: the keys' are done with when the values'
/// are made, so that a first-level cache need not hold both.
template <class Element, int bits>
MLXLM_NOINLINE void attend_coded_block(const AttentionTask& task, const RowTile& tile, int64_t block, int64_t tokens,
                                       const std::byte* start, const std::byte* next) {
  const int64_t key_groups = task.head_dim / task.group_size, value_groups = task.value_dim / task.group_size;
  const auto keys = coded_part(start, task.head_dim, bits, key_groups, Element::kSize);
  const auto values = coded_part(keys.end, task.value_dim, bits, value_groups, Element::kSize);
  const std::byte* ahead = next == nullptr ? start : next;
  widen_keys<Element, bits>(keys, task.head_dim, task.group_size, tokens, tile.keys, ahead);
  visit_runs<F32Element>(task, tile, block, reinterpret_cast<const std::byte*>(tile.keys),
                         reinterpret_cast<const std::byte*>(tile.values), nullptr, [&]() MLXLM_INLINE_LAMBDA {
                           widen_values<Element, bits>(values, task.value_dim, task.group_size, tokens, tile.values,
                                                       ahead + (values.codes - start));
                         });
}

/// Adds the keys of partition p to the tile's state.
template <class Element>
MLXLM_NOINLINE void attend_partition(const AttentionTask& task, const RowTile& tile, int64_t p) {
  constexpr int64_t kBlocks = kAttentionPartition / kKvBlockTokens;
  const Walk walk(task, tile.position(task, 0), kKvBlockTokens);
  const int64_t newest = tile.position(task, tile.rows - 1);
  const int64_t last_block = newest / kKvBlockTokens;
  const int64_t end_block = smaller((p + 1) * kBlocks, last_block + 1);
  const int64_t key_values = task.head_dim * kKvBlockTokens;
  for (int64_t block = walk.from(p * kBlocks); block < end_block;) {
    const std::byte* keys = task.blocks[block] + task.head_offset;
    const int64_t tokens = smaller(kKvBlockTokens, newest + 1 - block * kKvBlockTokens);
    const int64_t following = walk.from(block + 1);
    // The next partition's first block too: the same thread mostly takes it.
    const std::byte* next = following <= last_block ? task.blocks[following] + task.head_offset : task.then;
    const std::byte* values = keys + key_values * Element::kSize;
    if (task.bits == 8) {
      attend_coded_block<Element, 8>(task, tile, block, tokens, keys, next);
    } else if (task.bits == 4) {
      attend_coded_block<Element, 4>(task, tile, block, tokens, keys, next);
    } else if (Element::kSize == 4 || tile.rows <= kRowGroup) {
      attend_block<Element>(task, tile, block, keys, values, next);
    } else {
      const std::byte* next_values = next == nullptr ? nullptr : next + key_values * Element::kSize;
      convert<Element>(keys, key_values, tile.keys, next);
      convert<Element>(values, tokens * task.value_dim, tile.values, next_values);
      attend_block<F32Element>(task, tile, block, reinterpret_cast<const std::byte*>(tile.keys),
                               reinterpret_cast<const std::byte*>(tile.values), nullptr);
    }
    block = following;
  }
}

/// Lays tiles over the scratch: 192 rows at most, and about 400 KB, so that a tile stays in a second-level cache.
struct Tiling {
  int64_t rows_per_tile;
  float* free;  ///< scratch after the tile's own

  MLXLM_INLINE RowTile tile(const AttentionTask& task, int64_t first, void* scratch) {
    RowTile tile{};
    tile.first = first;
    tile.rows = smaller(rows_per_tile, task.n_queries * task.n_rep - first);
    free = static_cast<float*>(scratch);
    tile.keys = take(task.head_dim * kKvBlockTokens);
    tile.values = take(task.value_dim * kKvBlockTokens);
    tile.q = take(tile.rows * task.head_dim);
    tile.s = take(tile.rows * kKvBlockTokens);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t row = first + r;
      const float* q = task.q + row / task.n_rep * task.q_stride + row % task.n_rep * task.head_dim;
      for (int64_t d = 0; d < task.head_dim; d += 8) store_f32(tile.q + r * task.head_dim + d, load_f32(q + d));
    }
    return tile;
  }
  MLXLM_INLINE float* take(int64_t floats) {
    float* start = free;
    free += floats;
    return start;
  }
  MLXLM_INLINE RowState take_state(int64_t rows, int64_t value_dim) {
    float* out = take(rows * value_dim);
    float* m = take(rows);
    return {out, m, take(rows)};
  }
};

MLXLM_INLINE Tiling make_tiling(const AttentionTask& task) {
  const int64_t per_row = task.head_dim + kKvBlockTokens + 2 * task.value_dim + 4;
  const int64_t rows = smaller(192, 100000 / per_row);
  return {rows < kRowGroup ? larger(rows, 1) : rows / kRowGroup * kRowGroup, nullptr};
}

MLXLM_INLINE void attend(const AttentionTask& task, const RowTile& tile, int64_t p) {
  reset(tile.state, tile.rows, task.value_dim);
  with_element(task.dtype, [&](auto element) { attend_partition<decltype(element)>(task, tile, p); });
}

size_t attention_partial_floats(const AttentionTask& task) {
  return static_cast<size_t>(task.n_queries * task.n_rep * (task.value_dim + 2));
}

/// Where a partition's result holds the state of row `row`.
MLXLM_INLINE RowState partial_state(const AttentionTask& task, float* partial, int64_t row) {
  const int64_t rows = task.n_queries * task.n_rep;
  float* m = partial + rows * task.value_dim;
  return {partial + row * task.value_dim, m + row, m + rows + row};
}

void attention_partition(const AttentionTask& task, int64_t p, float* partial, void* scratch) {
  Tiling tiling = make_tiling(task);
  for (int64_t first = 0; first < task.n_queries * task.n_rep; first += tiling.rows_per_tile) {
    RowTile tile = tiling.tile(task, first, scratch);
    tile.state = partial_state(task, partial, first);
    attend(task, tile, p);
  }
}

/// Adds a partition's state of one row to `total`.
MLXLM_INLINE void merge_row(const RowState& total, const RowState& part, int64_t value_dim) {
  const float top = *part.m > *total.m ? *part.m : *total.m;
  alignas(32) float differences[8] = {*total.m - top, *part.m - top};
  store_f32(differences, exp_limited(load_f32(differences)));
  const F8 keep = splat(differences[0]), gain = splat(differences[1]);
  for (int64_t d = 0; d < value_dim; d += 8) {
    store_f32(total.out + d, fma(load_f32(part.out + d), gain, load_f32(total.out + d) * keep));
  }
  *total.l = fma(*part.l, differences[1], *total.l * differences[0]);
  *total.m = top;
}

MLXLM_INLINE bool sees_partition(const AttentionTask& task, int64_t row, int64_t p) {
  const int64_t position = task.position + row / task.n_rep, first = p * kAttentionPartition;
  return !visible_keys(task, position, first, kAttentionPartition, kFirstVisit).empty() ||
         !visible_keys(task, position, first, kAttentionPartition, kSecondVisit).empty();
}

MLXLM_INLINE float* output_row(const AttentionTask& task, int64_t row) {
  return task.out + row / task.n_rep * task.out_stride + row % task.n_rep * task.value_dim;
}

/// out = o / l
MLXLM_INLINE void finish_row(const float* o, float l, int64_t value_dim, float* out) {
  for (int64_t d = 0; d < value_dim; d += 8) store_f32(out + d, load_f32(o + d) / splat(l));
}

void attention_merge(const AttentionTask& task, const float* partials, const int64_t* partitions, int64_t count) {
  const int64_t floats = static_cast<int64_t>(attention_partial_floats(task));
  for (int64_t row = 0; row < task.n_queries * task.n_rep; ++row) {
    float m, l;
    const RowState total = {output_row(task, row), &m, &l};
    reset(total, 1, task.value_dim);
    for (int64_t i = 0; i < count; ++i) {
      if (!sees_partition(task, row, partitions[i])) continue;
      merge_row(total, partial_state(task, const_cast<float*>(partials) + i * floats, row), task.value_dim);
    }
    finish_row(total.out, l, task.value_dim, total.out);
  }
}

void attention(const AttentionTask& task, void* scratch) {
  Tiling tiling = make_tiling(task);
  for (int64_t first = 0; first < task.n_queries * task.n_rep; first += tiling.rows_per_tile) {
    RowTile tile = tiling.tile(task, first, scratch);
    tile.state = tiling.take_state(tile.rows, task.value_dim);
    const RowState total = tiling.take_state(tile.rows, task.value_dim);
    reset(total, tile.rows, task.value_dim);
    const Walk walk(task, tile.position(task, 0), kAttentionPartition);
    const int64_t last = tile.position(task, tile.rows - 1) / kAttentionPartition;
    for (int64_t p = walk.from(0); p <= last; p = walk.from(p + 1)) {
      attend(task, tile, p);
      for (int64_t r = 0; r < tile.rows; ++r) {
        if (!sees_partition(task, first + r, p)) continue;
        const RowState part = {tile.state.out + r * task.value_dim, tile.state.m + r, tile.state.l + r};
        merge_row({total.out + r * task.value_dim, total.m + r, total.l + r}, part, task.value_dim);
      }
    }
    for (int64_t r = 0; r < tile.rows; ++r) {
      finish_row(total.out + r * task.value_dim, total.l[r], task.value_dim, output_row(task, first + r));
    }
  }
}
