// A pool of threads for short parallel regions: a region starts in well under a microsecond while the workers are
// awake.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace mlxlm {

/// Cores this process may use (its affinity mask), at least 1.
int usable_cores();

/// A door between the threads of one region: those that wait go on when it is opened.
class Gate {
 public:
  /// Opens the gate at its end, also when an exception leaves the scope.
  class Opener {
   public:
    explicit Opener(Gate& gate) : gate_(gate) {}
    ~Opener() { gate_.open_.store(true, std::memory_order_release); }
    Opener(const Opener&) = delete;
    Opener& operator=(const Opener&) = delete;

   private:
    Gate& gate_;
  };

  bool is_open() const { return open_.load(std::memory_order_acquire); }
  void wait() const;

 private:
  alignas(64) std::atomic<bool> open_{false};
};

/// `size` threads, the caller's among them. One region runs at a time; calls from several threads must be serialised by
/// the owner. Workers spin for a short while after a region and then sleep, so an idle pool costs nothing.
class ThreadPool {
 public:
  /// threads ≤ 0: one per usable core.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(thread) once on every thread, thread in [0, size). The first exception is rethrown here.
  template <typename F>
  void run(F&& body) {
    using Body = std::remove_reference_t<F>;
    run_erased([](void* context, int thread) { (*static_cast<Body*>(context))(thread); }, &body);
  }

  /// Splits [0, n) into one contiguous range per thread, cut at multiples of `align`, and calls body(lo, hi, thread)
  /// for the non-empty ones. Contiguous halves beat dynamic chunks for memory-bound work: each chunk starts cold.
  template <typename F>
  void ranges(int64_t n, int64_t align, F&& body) {
    const int64_t units = (n + align - 1) / align;
    run([&](int thread) {
      const int64_t lo = units * thread / size() * align;
      const int64_t end = units * (thread + 1) / size() * align;
      const int64_t hi = end < n ? end : n;
      if (lo < hi) body(lo, hi, thread);
    });
  }

  /// Calls body(index, thread) for every index in [0, n), handed out one at a time: for uneven work.
  template <typename F>
  void tasks(int64_t n, F&& body) {
    if (n <= 0) return;
    std::atomic<int64_t> next{0};
    run([&](int thread) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(i, thread);
    });
  }

 private:
  using Region = void (*)(void* context, int thread);
  void run_erased(Region region, void* context);
  void work(int thread);
  void call(int thread) noexcept;

  std::vector<std::thread> workers_;
  Region region_ = nullptr;
  void* context_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  alignas(64) std::atomic<uint32_t> epoch_{0};  // a new value starts a region
  alignas(64) std::atomic<int> sleepers_{0};    // workers that wait on epoch_ in the kernel
  alignas(64) std::atomic<int> running_{0};     // workers that have not finished the region
  std::atomic<bool> stop_{false};
};

}  // namespace mlxlm
