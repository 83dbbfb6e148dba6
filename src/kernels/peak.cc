#include "kernels/peak.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/page_arena.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/peak_sets.h"

namespace mlxlm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

const PeakKernels& select_peak(std::string_view isa) {
  const std::string name = select_kernels(isa).isa;
#if defined(__x86_64__)
  if (name == avx2::kPeak.isa) return avx2::kPeak;
#elif defined(__aarch64__)
  if (name == neon_dot::kPeak.isa) return neon_dot::kPeak;
  if (name == neon::kPeak.isa) return neon::kPeak;
#endif
  return scalar::kPeak;
}

/// Sum over the threads of each one's best run: all run at the same time, for about 60 ms.
double multiply_rate(ThreadPool& pool, int64_t (*macs)(int64_t rounds)) {
  constexpr double kRun = 0.001;  // short enough that some runs are not interrupted, long enough for the clock
  constexpr double kTotal = 0.06;
  std::vector<double> best(static_cast<size_t>(pool.size()));
  pool.run([&](int thread) {
    int64_t rounds = 256;
    double top = 0;
    for (const Clock::time_point start = Clock::now(); seconds_since(start) < kTotal;) {
      const Clock::time_point run_start = Clock::now();
      const int64_t done = macs(rounds);
      const double seconds = seconds_since(run_start);
      if (seconds < kRun) {
        rounds *= 2;
      } else {
        top = std::max(top, static_cast<double>(done) / seconds);
      }
    }
    best[static_cast<size_t>(thread)] = top;
  });
  double sum = 0;
  for (const double rate : best) sum += rate;
  return sum;
}

/// Bytes of one last-level cache. The kernel's own figure: sysconf() gives 256 MB where a core can reach 32 MB.
size_t last_level_cache() {
  constexpr size_t kUsual = size_t{32} << 20;
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  size_t value = 0;
  char unit = 'K';
  if (!(file >> value) || value == 0) return kUsual;
  file >> unit;
  return value << (unit == 'M' ? 20 : 10);
}

/// At least 6 times the cache these threads can reach, so that little of a pass is left in it for the next; at most a
/// quarter of the memory that is free.
size_t buffer_bytes(int threads) {
  constexpr size_t kMegabyte = size_t{1} << 20;
  const size_t caches = 1 + static_cast<size_t>(threads - 1) / 8;  // 8 or more cores share one on today's machines
  size_t bytes = 6 * last_level_cache() * caches;
#if defined(_SC_AVPHYS_PAGES)
  const long pages = ::sysconf(_SC_AVPHYS_PAGES);
  if (pages > 0) bytes = std::min(bytes, static_cast<size_t>(pages) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) / 4);
#endif
  return std::clamp(bytes / kMegabyte, size_t{16}, size_t{2048}) * kMegabyte;
}

/// Bytes per second of the fastest piece of the buffer, read by all threads together.
double read_rate(ThreadPool& pool, uint64_t (*read)(const std::byte*, size_t)) {
  constexpr int64_t kChunk = int64_t{1} << 20;  // handed out one by one, so that a slower core reads less
  constexpr int64_t kPerPiece = 16;             // about a millisecond: some pieces are read without interruption
  constexpr double kTotal = 0.15;
  const size_t bytes = buffer_bytes(pool.size());
  const std::unique_ptr<std::byte, decltype(&std::free)> buffer(static_cast<std::byte*>(allocate_aligned(bytes)),
                                                                &std::free);
  if (!buffer) throw std::bad_alloc();
  const int64_t chunks = static_cast<int64_t>(bytes) / kChunk;
  pool.tasks(chunks, [&](int64_t chunk, int) { std::memset(buffer.get() + chunk * kChunk, 1, kChunk); });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  const Clock::time_point start = Clock::now();
  for (int64_t piece = 0; piece < chunks / kPerPiece || seconds_since(start) < kTotal; ++piece) {
    const std::byte* data = buffer.get() + piece % (chunks / kPerPiece) * kPerPiece * kChunk;
    const Clock::time_point piece_start = Clock::now();
    pool.tasks(kPerPiece, [&](int64_t chunk, int) { sink ^= read(data + chunk * kChunk, kChunk); });
    best = std::max(best, static_cast<double>(kPerPiece * kChunk) / seconds_since(piece_start));
  }
  return best;
}

}  // namespace

MachineLimits measure_machine(int threads, std::string_view isa) {
  const PeakKernels& kernels = select_peak(isa);
  ThreadPool pool(threads);
  MachineLimits limits;
  limits.read_gb_per_s = read_rate(pool, kernels.read) / 1e9;
  limits.int8_gmac_per_s = multiply_rate(pool, kernels.int8_macs) / 1e9;
  limits.float32_gmac_per_s = multiply_rate(pool, kernels.float32_macs) / 1e9;
  return limits;
}

}  // namespace mlxlm
