// Speed of the `fast` affine products: few tokens against a plain read of the same bytes, many tokens in GMAC/s.
//
// affine_bench [--isa NAME] [--threads N] [--seconds S per case] [--dtype f16|bf16|f32] [--copies N, 1: from a cache]
//              [FILTER: part of a case's name]
// Best and median of interleaved runs, because neighbours on a shared machine disturb single ones.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/kernels.h"

namespace mlxlm {
namespace {

struct Case {
  const char* name;
  int64_t rows;
  int64_t cols;
  int64_t copies;  ///< matrices walked in turn; enough for 96 MB or more where DRAM is to be measured
};

struct Options {
  std::string isa;
  std::string filter;
  int threads = 1;
  int64_t copies = 0;  ///< 0: enough for memory to be measured up to 8 tokens, 1 for more
  double seconds = 0.4;
  DType dtype = DType::f16;
};

// With one thread the products are timed in its CPU time, which other processes' turns do not count in.
double cpu_now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Runs f(thread) on all threads at once; workers spin, so that a run of microseconds can be timed.
class Workers {
 public:
  explicit Workers(int threads) : n_(threads) {
    for (int i = 1; i < n_; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Workers() {
    f_ = nullptr;
    start_.fetch_add(1);
    for (std::thread& t : threads_) t.join();
  }
  double time(const std::function<void(int)>& f) {
    f_ = f;
    done_ = 1;
    const double from = n_ == 1 ? cpu_now() : now();
    start_.fetch_add(1);
    f(0);
    while (done_.load() < n_) {
    }
    return (n_ == 1 ? cpu_now() : now()) - from;
  }

 private:
  void work(int i) {
    for (int seen = 0;;) {
      while (start_.load() == seen) {
      }
      ++seen;
      if (!f_) return;
      f_(i);
      done_.fetch_add(1);
    }
  }

  int n_;
  std::function<void(int)> f_;
  std::atomic<int> start_{0}, done_{0};
  std::vector<std::thread> threads_;
};

struct Product {
  std::vector<std::byte> storage;
  std::vector<Matrix> matrices;
  int64_t bytes = 0;
};

Product make_product(const Case& c, int bits, int group_size, DType dtype, int64_t copies) {
  Product p;
  Matrix m{.data = nullptr,
           .scales = nullptr,
           .biases = nullptr,
           .rows = c.rows,
           .cols = c.cols,
           .dtype = dtype,
           .bits = bits,
           .group_size = group_size};
  p.bytes = m.bytes() * copies;
  p.storage.resize(static_cast<size_t>(p.bytes));
  std::minstd_rand rng;
  std::byte* at = p.storage.data();
  for (int64_t i = 0; i < copies; ++i) {
    const int64_t data_bytes = m.rows * m.row_bytes(), scales = m.rows * m.groups();
    m.data = at;
    for (int64_t b = 0; b + 4 <= data_bytes; b += 4) {
      const auto word = static_cast<uint32_t>(rng() * 2654435761u);
      std::memcpy(at + b, &word, 4);
    }
    at += data_bytes;
    m.scales = at;
    m.biases = at + scales * static_cast<int64_t>(dtype_size(dtype));
    for (int64_t s = 0; s < 2 * scales; ++s, at += dtype_size(dtype)) {
      const uint32_t value = dtype == DType::f32 ? 0x3c000000u : dtype == DType::f16 ? 0x1c00u : 0x3c00u;
      std::memcpy(at, &value, dtype_size(dtype));
    }
    p.matrices.push_back(m);
  }
  return p;
}

void plain_read(const std::byte* p, size_t n) {
  uint64_t sum[8] = {};
  for (size_t i = 0; i + 64 <= n; i += 64) {
    uint64_t v[8];
    std::memcpy(v, p + i, 64);
    for (int j = 0; j < 8; ++j) sum[j] ^= v[j];
  }
  volatile uint64_t keep = sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
  static_cast<void>(keep);
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void run(const Kernels& k, const Options& o, const Case& c, int bits, int group_size, int64_t tokens,
         Workers& workers) {
  const std::string name = std::string(c.name) + " " + std::to_string(bits) + "b g" + std::to_string(group_size) +
                           " T=" + std::to_string(tokens);
  if (name.find(o.filter) == std::string::npos) return;
  const int64_t copies = o.copies > 0 ? o.copies : tokens <= 8 ? c.copies : 1;
  const Product p = make_product(c, bits, group_size, o.dtype, copies);
  const std::vector<float> x(static_cast<size_t>(tokens * c.cols), 0.5f);
  const int pack_class = k.pack_class(bits);
  std::vector<std::byte> packed(k.packed_bytes(pack_class, tokens, c.cols));
  std::vector<float> out(static_cast<size_t>(tokens * c.rows));
  std::vector<std::vector<std::byte>> scratch(static_cast<size_t>(o.threads),
                                              std::vector<std::byte>(kScratchBytes + 64));
  std::vector<double> product, read, pack;
  const int64_t part = (c.rows / o.threads + kRowTile - 1) / kRowTile * kRowTile;
  const size_t slice = static_cast<size_t>(p.bytes / o.threads);
  for (const double end = now() + o.seconds; now() < end || product.size() < 5;) {
    pack.push_back(workers.time([&](int i) {
      if (i == 0) k.pack_activations(pack_class, x.data(), tokens, c.cols, 0, tokens, packed.data());
    }));
    product.push_back(workers.time([&](int i) {
      auto* own = scratch[static_cast<size_t>(i)].data();
      own += (64 - reinterpret_cast<uintptr_t>(own) % 64) % 64;
      for (const Matrix& m : p.matrices) {
        const int64_t lo = std::min(c.rows, i * part), hi = std::min(c.rows, lo + part);
        if (lo < hi) k.affine_matmul(m, packed.data(), tokens, lo, hi, out.data(), c.rows, own);
      }
    }));
    if (tokens <= 8) {
      read.push_back(
          workers.time([&](int i) { plain_read(p.storage.data() + static_cast<size_t>(i) * slice, slice); }));
    }
  }
  const double best = *std::min_element(product.begin(), product.end()), mid = median(product);
  const double macs = static_cast<double>(c.rows * c.cols * tokens * copies) / 1e9,
               gb = static_cast<double>(p.bytes) / 1e9;
  std::printf("%-32s %7.1f GMAC/s best %7.1f median | %6.2f GB/s best %6.2f median", name.c_str(), macs / best,
              macs / mid, gb / best, gb / mid);
  if (!read.empty()) {
    const double read_best = *std::min_element(read.begin(), read.end());
    std::printf(" | read %5.2f best %5.2f median, share %3.0f%% %3.0f%%", gb / read_best, gb / median(read),
                100 * read_best / best, 100 * median(read) / mid);
  }
  std::printf(" | pack %.1f us\n", *std::min_element(pack.begin(), pack.end()) * 1e6);
  std::fflush(stdout);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (a == "--isa")
      o.isa = value, ++i;
    else if (a == "--threads")
      o.threads = std::max(1, std::atoi(value)), ++i;
    else if (a == "--copies")
      o.copies = std::max(1, std::atoi(value)), ++i;
    else if (a == "--seconds")
      o.seconds = std::atof(value), ++i;
    else if (a == "--dtype")
      o.dtype = std::string(value) == "bf16" ? DType::bf16 : std::string(value) == "f32" ? DType::f32 : DType::f16, ++i;
    else
      o.filter = a;
  }
  return o;
}

int bench(int argc, char** argv) {
  const Options o = parse(argc, argv);
  const Kernels& k = select_kernels(o.isa);
  Workers workers(o.threads);
  std::printf("%s, %d thread(s), scales %s\n", k.isa, o.threads, dtype_name(o.dtype));
  constexpr Case kCases[] = {{"135M gate", 1536, 576, 200},
                             {"135M down", 576, 1536, 200},
                             {"1B gate", 8192, 2048, 10},
                             {"1B down", 2048, 8192, 10}};
  for (const Case& c : kCases) {
    for (const int bits : {4, 8, 2, 3, 5, 6}) {
      for (const int group_size : {32, 64}) {
        if (bits != 4 && group_size != 64) continue;
        for (const int64_t tokens : {1, 2, 3, 4, 5, 8, 16, 32, 512}) run(k, o, c, bits, group_size, tokens, workers);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace mlxlm

int main(int argc, char** argv) { return mlxlm::bench(argc, argv); }
