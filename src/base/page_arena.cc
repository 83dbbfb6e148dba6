#include "base/page_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace mlxlm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kChunkBytes = 16 * kHugePageBytes;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void wish_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(MADV_HUGEPAGE)
  ::madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

void* allocate_aligned(size_t bytes) {
  if (bytes < kHugePageBytes) return std::aligned_alloc(kLine, round_up(bytes, kLine));
  const size_t whole = round_up(bytes, kHugePageBytes);
  void* const memory = std::aligned_alloc(kHugePageBytes, whole);
  if (memory != nullptr) wish_for_huge_pages(memory, whole);
  return memory;
}

PageArena::~PageArena() {
  for (const Chunk& chunk : chunks_) std::free(chunk.memory);
}

void* PageArena::allocate(size_t bytes) {
  const size_t size = round_up(bytes, kLine);
  if (const auto hole = holes_.find(size); hole != holes_.end() && !hole->second.empty()) {
    void* const block = hole->second.back();
    hole->second.pop_back();
    return block;
  }
  if (chunks_.empty() || chunks_.back().bytes - used_ < size) {
    const size_t chunk = round_up(std::max(size, kChunkBytes), kHugePageBytes);
    void* const memory = allocate_aligned(chunk);
    if (memory == nullptr) return nullptr;
    chunks_.push_back({static_cast<std::byte*>(memory), chunk});
    used_ = 0;
  }
  void* const block = chunks_.back().memory + used_;
  used_ += size;
  return block;
}

void PageArena::release(void* block, size_t bytes) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = round_up(bytes, kLine);
  const auto begin = reinterpret_cast<uintptr_t>(block);
  const uintptr_t first = round_up(begin, page), end = (begin + size) / page * page;
  if (end > first) ::madvise(static_cast<std::byte*>(block) + (first - begin), end - first, MADV_DONTNEED);
  try {
    holes_[size].push_back(block);
  } catch (const std::bad_alloc&) {  // the place is lost, not the memory
  }
}

}  // namespace mlxlm
