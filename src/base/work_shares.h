// Splitting work between threads so that it stays level when a core is slower.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace mlxlm {

/// Units [0, n), an equal contiguous share of them for each thread. A thread takes its own share from the front, piece
/// by piece, so that memory is read in order; when it is done, it takes from the end of what others have left.
class WorkShares {
 public:
  struct Piece {
    int64_t lo = 0, hi = 0;
    bool empty() const { return lo >= hi; }
  };

  explicit WorkShares(int threads);

  /// Before the threads start. n < 2^32.
  void reset(int64_t n);
  /// What is left of the thread's own share. Only a hint while others take from it.
  Piece left(int thread) const;
  /// The next piece for `thread`, a quarter of what is left of a share but at least `least` units; empty: nothing is
  /// left for it. Every unit is handed out once.
  Piece take(int thread, int64_t least);

 private:
  struct alignas(64) Share {
    std::atomic<uint64_t> range{0};  // begin in the low half, end in the high half
  };

  Piece take_from(Share& share, int64_t least, bool front);

  int threads_;
  std::unique_ptr<Share[]> shares_;
};

}  // namespace mlxlm
