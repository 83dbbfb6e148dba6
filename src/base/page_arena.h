// Memory in huge pages: reads of it need fewer address translations, and first writes fewer page faults.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace mlxlm {

/// The size of a huge page of x86-64 and of most AArch64 systems.
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// Asks for huge pages where the system has them for this mapping; nothing but time is lost where it has none.
void wish_for_huge_pages(void* memory, size_t bytes);

/// Uninitialised memory at a multiple of 64, from one huge page's size on in huge pages where the system has them. Give
/// it to std::free. Null where there is none.
void* allocate_aligned(size_t bytes);

/// Memory for blocks of a few sizes that come and go. Not thread-safe.
class PageArena {
 public:
  PageArena() = default;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  /// Uninitialised, at a multiple of 64; null where there is none. Only what is touched is taken from the system.
  void* allocate(size_t bytes);
  /// Gives the block's whole pages back to the system; its place serves later blocks of the same size.
  void release(void* block, size_t bytes);

 private:
  struct Chunk {
    std::byte* memory;
    size_t bytes;
  };

  std::vector<Chunk> chunks_;
  size_t used_ = 0;  // bytes of the last chunk
  std::map<size_t, std::vector<void*>> holes_;
};

}  // namespace mlxlm
