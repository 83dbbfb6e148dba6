#include "base/work_shares.h"

#include <algorithm>

namespace mlxlm {
namespace {

// With many threads, looking at all shares would cost more than a level end is worth.
constexpr int kMostVictims = 8;

uint64_t join(WorkShares::Piece piece) {
  return static_cast<uint64_t>(piece.hi) << 32 | static_cast<uint64_t>(piece.lo);
}

WorkShares::Piece split(uint64_t range) {
  return {static_cast<int64_t>(range & 0xffffffff), static_cast<int64_t>(range >> 32)};
}

}  // namespace

WorkShares::WorkShares(int threads)
    : threads_(threads), shares_(std::make_unique<Share[]>(static_cast<size_t>(threads))) {}

void WorkShares::reset(int64_t n) {
  for (int t = 0; t < threads_; ++t) {
    shares_[static_cast<size_t>(t)].range.store(join({n * t / threads_, n * (t + 1) / threads_}),
                                                std::memory_order_relaxed);
  }
}

WorkShares::Piece WorkShares::left(int thread) const {
  return split(shares_[static_cast<size_t>(thread)].range.load(std::memory_order_relaxed));
}

WorkShares::Piece WorkShares::take(int thread, int64_t least) {
  Piece piece = take_from(shares_[static_cast<size_t>(thread)], least, true);
  const int victims = std::min(threads_ - 1, kMostVictims);
  for (int i = 1; i <= victims && piece.empty(); ++i) {
    piece = take_from(shares_[static_cast<size_t>((thread + i) % threads_)], least, false);
  }
  return piece;
}

// Relaxed: the ranges only say who does what. What the work reads and writes is ordered by the region it is in.
WorkShares::Piece WorkShares::take_from(Share& share, int64_t least, bool front) {
  uint64_t range = share.range.load(std::memory_order_relaxed);
  for (;;) {
    Piece left = split(range);
    if (left.empty()) return {};
    const int64_t n = std::min(left.hi - left.lo, std::max(least, (left.hi - left.lo) / 4));
    const Piece taken = front ? Piece{left.lo, left.lo + n} : Piece{left.hi - n, left.hi};
    (front ? left.lo : left.hi) = front ? taken.hi : taken.lo;
    if (share.range.compare_exchange_weak(range, join(left), std::memory_order_relaxed)) return taken;
  }
}

}  // namespace mlxlm
