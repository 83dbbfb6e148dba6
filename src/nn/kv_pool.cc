#include "nn/kv_pool.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/memory.h"

namespace mlxlm::nn {

KvLayout KvGroup::layout_of(int bits, int group_size) const {
  KvLayout coded = layout;
  coded.bits = bits;
  coded.group_size = bits == 0 ? 0 : group_size;
  return coded;
}

std::vector<KvGroup> make_kv_groups(const ModelSpec& spec, DType dtype) {
  std::vector<KvGroup> groups;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& a = spec.layers[i].attention;
    const auto same = [&](const KvGroup& g) {
      return g.window == a.window && g.layout.n_kv_heads == a.n_kv_heads && g.layout.head_dim == a.head_dim;
    };
    auto it = std::find_if(groups.begin(), groups.end(), same);
    if (it == groups.end()) {
      KvGroup group;
      group.window = a.window;
      group.layout = {a.n_kv_heads, a.head_dim, a.head_dim, dtype};
      it = groups.insert(groups.end(), group);
    }
    it->layers.push_back(static_cast<int>(i));
  }
  return groups;
}

/// Stands before a block's data, in a cache line of its own.
struct alignas(64) KvPool::Header {
  int64_t bytes = 0;  // of the data
  size_t pool = 0;    // index into free_
  int references = 0;
};

KvPool::Header& KvPool::header(BlockId block) { return *reinterpret_cast<Header*>(block - sizeof(Header)); }

void KvPool::free_block(BlockId block) {
  arena_.release(block - sizeof(Header), sizeof(Header) + static_cast<size_t>(header(block).bytes));
}

size_t KvPool::format_index(int bits, int group_size) {
  if (bits == 0) return 0;
  const size_t size = group_size == 32 ? 0 : group_size == 64 ? 1 : 2;
  return (bits == 4 ? 1 : 4) + size;
}

KvPool::KvPool(std::vector<KvGroup> groups, int64_t byte_budget)
    : groups_(std::move(groups)), byte_budget_(byte_budget), free_(groups_.size() * kFormats) {}

KvPool::~KvPool() { give_back(); }

int64_t KvPool::block_bytes(BlockId block) { return header(block).bytes; }

// Frees blocks kept for formats that nothing asks for, so that all together stay within the budget.
void KvPool::make_space(int64_t bytes) {
  if (byte_budget_ == 0) return;
  for (auto& list : free_) {
    while (!list.empty() && bytes_in_use_ + bytes_free_ + bytes > byte_budget_) {
      bytes_free_ -= header(list.back()).bytes;
      free_block(list.back());
      list.pop_back();
    }
  }
}

KvPool::BlockId KvPool::allocate(size_t group, int bits, int group_size) {
  const std::lock_guard lock(mutex_);
  const size_t pool = group * kFormats + format_index(bits, group_size);
  const int64_t bytes = groups_[group].block_bytes(bits, group_size);
  if (byte_budget_ > 0 && bytes_in_use_ + bytes > byte_budget_) {
    throw_invalid(
        "the KV budget of {} bytes is spent ({} in use, {} more needed); shorten the prompt or raise the budget",
        byte_budget_, bytes_in_use_, bytes);
  }
  auto& list = free_[pool];
  BlockId block = nullptr;
  if (!list.empty()) {
    block = list.back();
    list.pop_back();
    bytes_free_ -= bytes;
  } else {
    make_space(bytes);
    const size_t size = sizeof(Header) + static_cast<size_t>(bytes);
    void* const memory = arena_.allocate(size);
    if (memory == nullptr) throw_error(ErrorKind::io, "out of memory: {} bytes for keys and values", size);
    block = static_cast<std::byte*>(memory) + sizeof(Header);
    new (memory) Header{bytes, pool, 0};
  }
  header(block).references = 1;
  bytes_in_use_ += bytes;
  return block;
}

void KvPool::retain(BlockId block) {
  const std::lock_guard lock(mutex_);
  ++header(block).references;
}

int KvPool::references(BlockId block) const {
  const std::lock_guard lock(mutex_);
  return header(block).references;
}

void KvPool::release(BlockId block) {
  const std::lock_guard lock(mutex_);
  Header& h = header(block);
  if (--h.references > 0) return;
  bytes_in_use_ -= h.bytes;
  try {
    free_[h.pool].push_back(block);
    bytes_free_ += h.bytes;
  } catch (const std::bad_alloc&) {  // no memory to remember it by
    free_block(block);
  }
}

int64_t KvPool::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return bytes_in_use_;
}

int64_t KvPool::bytes_held() const {
  const std::lock_guard lock(mutex_);
  return bytes_in_use_ + bytes_free_;
}

void KvPool::give_back() {
  const std::lock_guard lock(mutex_);
  for (auto& list : free_) {
    for (const BlockId block : list) free_block(block);
    std::vector<BlockId>().swap(list);
  }
  bytes_free_ = 0;
  return_freed_memory();
}

}  // namespace mlxlm::nn
