#include "base/thread_pool.h"

#include <sched.h>

#include "base/float_control.h"

namespace mlxlm {
namespace {

// About 100 µs of spinning covers the serial gaps of a forward pass; after it a wake-up through the kernel costs about
// as much, and an idle process should not burn cores.
constexpr int kSpinsBeforeSleep = 20000;
// With more threads than cores the spinner may hold the core its partner needs.
constexpr int kSpinsBeforeYield = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename F>
void spin_until(const F& done) {
  for (int spins = 0; !done(); ++spins) {
    if (spins < kSpinsBeforeYield) {
      pause_cpu();
    } else {
      sched_yield();
    }
  }
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int n = CPU_COUNT(&set);
    if (n > 0) return n;
  }
  const unsigned n = std::thread::hardware_concurrency();
  return n > 0 ? static_cast<int>(n) : 1;
}

void Gate::wait() const {
  spin_until([this] { return is_open(); });
}

ThreadPool::ThreadPool(int threads) {
  const int n = threads > 0 ? threads : usable_cores();
  workers_.reserve(static_cast<size_t>(n - 1));
  for (int i = 1; i < n; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::call(int thread) noexcept {
  try {
    region_(context_, thread);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::run_erased(Region region, void* context) {
  region_ = region;
  context_ = context;
  if (!workers_.empty()) {
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    epoch_.fetch_add(1);  // sequentially consistent with the sleepers' check below
    if (sleepers_.load() > 0) epoch_.notify_all();
  }
  call(0);
  spin_until([this] { return running_.load(std::memory_order_acquire) == 0; });
  if (error_) {
    std::exception_ptr error;
    std::swap(error, error_);
    std::rethrow_exception(error);
  }
}

void ThreadPool::work(int thread) {
  const FloatControl float_control;
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kSpinsBeforeSleep) {
        if (spins % kSpinsBeforeYield == kSpinsBeforeYield - 1) sched_yield();
        pause_cpu();
        continue;
      }
      sleepers_.fetch_add(1);
      epoch_.wait(seen);  // returns at once when the epoch moved on meanwhile
      sleepers_.fetch_sub(1);
    }
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    call(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace mlxlm
