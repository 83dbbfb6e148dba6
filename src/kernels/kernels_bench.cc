// Speed of the kernels on one thread, beside the machine's limits measured in the same run. Best of several
// repetitions. Usage: kernels_bench [isa] [part of a case's name]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/format.h"
#include "kernels/kernels.h"
#include "kernels/peak.h"

namespace mlxlm {
namespace {

/// Seconds this thread has run: time given to other processes does not count.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Bits that are finite in every element type: half of them negative, magnitudes about 0.1 to 2.
std::vector<std::byte> elements(DType dtype, int64_t n) {
  std::vector<std::byte> bytes(static_cast<size_t>(n) * dtype_size(dtype));
  uint64_t state = 88172645463325252u;
  for (int64_t i = 0; i < n; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const uint32_t r = static_cast<uint32_t>(state >> 32);
    const uint32_t wide = (r & 0x81ffffff) | 0x3e000000;
    const uint16_t half = static_cast<uint16_t>((r & 0x8fff) | 0x3000), brain = static_cast<uint16_t>(wide >> 16);
    const void* from = dtype == DType::f32 ? static_cast<const void*>(&wide) : dtype == DType::f16 ? &half : &brain;
    std::memcpy(&bytes[static_cast<size_t>(i) * dtype_size(dtype)], from, dtype_size(dtype));
  }
  return bytes;
}

class Bench {
 public:
  Bench(const Kernels& kernels, std::string filter) : k(kernels), filter_(std::move(filter)), scratch_(kScratchBytes) {}

  void* scratch() { return scratch_.data(); }

  /// One case: `bytes` read from memory and `macs` multiply-adds (either may be 0) each time f runs.
  void time(const std::string& name, double bytes, double macs, const std::function<void()>& f) {
    if (name.find(filter_) == std::string::npos) return;
    double best = 1e9, read = 0;
    for (int i = 0; i < 15; ++i) {
      if (bytes > 0) read = std::max(read, plain_read());
      const double start = now();
      f();
      best = std::min(best, now() - start);
    }
    std::printf("%-46s %9.3f ms", name.c_str(), best * 1e3);
    if (bytes > 0) std::printf("  %6.1f GB/s (%3.0f%% of a plain read)", bytes / best / 1e9, 100 * bytes / best / read);
    if (macs > 0) std::printf("  %6.1f GMAC/s", macs / best / 1e9);
    std::printf("\n");
    std::fflush(stdout);
  }

  const Kernels& k;

 private:
  /// Bytes per second.
  double plain_read() {
    static std::vector<uint64_t> words(size_t{6} << 20, 1);
    const double start = now();
    uint64_t sum[8] = {};
    for (size_t i = 0; i < words.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    const double seconds = now() - start;
    volatile uint64_t sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    (void)sink;
    return static_cast<double>(words.size()) * 8 / seconds;
  }

  std::string filter_;
  std::vector<std::byte> scratch_;
};

void bench_matmul(Bench& bench) {
  const int64_t cols = 2048;
  for (const auto& [dtype, bits] : std::initializer_list<std::pair<DType, int>>{{DType::f32, 0},
                                                                                {DType::f16, 0},
                                                                                {DType::bf16, 0},
                                                                                {DType::f16, 2},
                                                                                {DType::bf16, 3},
                                                                                {DType::bf16, 4},
                                                                                {DType::bf16, 5},
                                                                                {DType::bf16, 6},
                                                                                {DType::bf16, 8}}) {
    Matrix w;
    w.rows = 8192;
    w.cols = cols;
    w.dtype = dtype;
    w.bits = bits;
    w.group_size = 32;
    const auto data = elements(DType::f32, w.rows * w.row_bytes() / 4);
    const auto scales = elements(dtype, w.rows * std::max<int64_t>(1, w.groups()));
    w.data = bits == 0 && dtype != DType::f32 ? nullptr : data.data();
    const auto dense = elements(dtype, bits == 0 ? w.rows * w.cols : 8);
    if (bits == 0) w.data = dense.data();
    w.scales = w.biases = scales.data();
    const std::string format = bits == 0 ? "" : format_text(" {}-bit", bits);
    const std::string name = format_text("float_matmul {}{}", dtype_name(dtype), format);
    for (int64_t tokens : {1, 2, 4, 8, 16, 64, 512}) {
      const std::vector<float> x(static_cast<size_t>(tokens * cols), 0.5f);
      std::vector<float> out(static_cast<size_t>(tokens * w.rows));
      const int64_t rows = tokens > 32 ? 1024 : w.rows;
      bench.time(format_text("{} T={}", name, tokens), tokens == 1 ? static_cast<double>(w.bytes()) : 0,
                 static_cast<double>(tokens * rows * cols),
                 [&] { bench.k.float_matmul(w, x.data(), tokens, 0, rows, out.data(), w.rows, bench.scratch()); });
    }
  }
}

/// Layers' blocks of `positions` keys, far more than a cache holds.
struct Cache {
  Cache(const KvLayout& layout, int64_t positions, int64_t layers) : blocks_per_layer((positions + 63) / 64) {
    // Codes need no care; as elements they make scales and biases that are finite too.
    bytes = elements(layout.dtype,
                     layers * blocks_per_layer * layout.layer_bytes() / static_cast<int64_t>(dtype_size(layout.dtype)));
    for (int64_t i = 0; i < layers * blocks_per_layer; ++i) blocks.push_back(bytes.data() + i * layout.layer_bytes());
  }
  int64_t blocks_per_layer;
  std::vector<std::byte> bytes;
  std::vector<const std::byte*> blocks;
};

void bench_attention(Bench& bench, const KvLayout& layout, int64_t n_rep) {
  const int64_t layers = 8, head_dim = layout.head_dim;
  const Cache cache(layout, 4608, layers);
  const std::vector<float> q(static_cast<size_t>(512 * n_rep * head_dim), 0.01f);
  std::vector<float> out(q.size());
  AttentionTask task{.q = q.data(), .q_stride = n_rep * head_dim, .n_queries = 1, .n_rep = n_rep, .position = 4095};
  task.head_dim = task.value_dim = head_dim;
  task.dtype = layout.dtype;
  task.bits = layout.bits;
  task.group_size = layout.group_size;
  task.out = out.data();
  task.out_stride = n_rep * head_dim;
  std::vector<float> partials(bench.k.attention_partial_floats(task) * 16);
  std::vector<int64_t> numbers(16);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto all = [&](int64_t count, auto f) {
    for (int64_t l = 0; l < count; ++l) {
      task.blocks = cache.blocks.data() + l * cache.blocks_per_layer;
      for (int64_t h = 0; h < layout.n_kv_heads; ++h) {
        task.head_offset = h * layout.head_bytes();
        f();
      }
    }
  };
  const std::string format = layout.bits == 0 ? "" : format_text(" {}-bit", layout.bits);
  const std::string name =
      format_text("attention {}{} dim {} rep {}", dtype_name(layout.dtype), format, head_dim, n_rep);
  const int64_t blocks = layers * 4096 / kKvBlockTokens;
  const double bytes = static_cast<double>(blocks * layout.layer_bytes());
  const double macs = static_cast<double>(layers * layout.n_kv_heads * 4096 * n_rep * 2 * head_dim);
  bench.time(name + " decode partitions", bytes, macs, [&] {
    all(layers, [&] {
      for (int64_t p = 0; p < 16; ++p) {
        bench.k.attention_partition(task, p,
                                    partials.data() + p * static_cast<int64_t>(bench.k.attention_partial_floats(task)),
                                    bench.scratch());
      }
      bench.k.attention_merge(task, partials.data(), numbers.data(), 16);
    });
  });
  bench.time(name + " decode whole", bytes, macs,
             [&] { all(layers, [&] { bench.k.attention(task, bench.scratch()); }); });
  for (int64_t depth : {0, 4096}) {
    task.n_queries = 512;
    task.position = depth;
    const int64_t pairs = 512 * depth + 512 * 513 / 2;
    bench.time(format_text("{} prefill 512 at {}", name, depth), 0,
               static_cast<double>(pairs * layout.n_kv_heads * n_rep * 2 * head_dim),
               [&] { all(1, [&] { bench.k.attention(task, bench.scratch()); }); });
  }
}

void bench_attention(Bench& bench) {
  struct Format {
    DType dtype;
    int bits;
  };
  for (const Format& format : std::initializer_list<Format>{
           {DType::f16, 0}, {DType::bf16, 0}, {DType::f32, 0}, {DType::bf16, 8}, {DType::bf16, 4}}) {
    for (const auto& [head_dim, n_rep] :
         std::initializer_list<std::pair<int64_t, int64_t>>{{64, 3}, {64, 1}, {128, 4}, {80, 1}, {256, 2}}) {
      if (format.bits != 0 && head_dim % 64 != 0) continue;
      bench_attention(bench, {3, head_dim, head_dim, format.dtype, format.bits, format.bits == 0 ? 0 : 64}, n_rep);
    }
  }
}

void bench_rows(Bench& bench) {
  const int64_t n = 150'000;
  const auto bytes = elements(DType::f32, n);
  std::vector<float> x(static_cast<size_t>(n)), y(static_cast<size_t>(n), 0.5f);
  std::memcpy(x.data(), bytes.data(), bytes.size());
  const double size = static_cast<double>(bytes.size());
  volatile float sink = 0;
  bench.time("argmax 150000", size, 0, [&] { sink = static_cast<float>(bench.k.argmax(x.data(), n)); });
  bench.time("max 150000", size, 0, [&] { sink = bench.k.max(x.data(), n); });
  bench.time("log_sum_exp 150000", size, 0, [&] { sink = bench.k.log_sum_exp(x.data(), n); });
  (void)sink;
  std::vector<float> out(static_cast<size_t>(n));
  bench.time("gated silu 150000", 0, 0, [&] { bench.k.gated(Activation::silu, x.data(), y.data(), out.data(), n); });
  bench.time("gated gelu_tanh 150000", 0, 0,
             [&] { bench.k.gated(Activation::gelu_tanh, x.data(), y.data(), out.data(), n); });
  bench.time("gated gelu 150000", 0, 0, [&] { bench.k.gated(Activation::gelu, x.data(), y.data(), out.data(), n); });
  bench.time("rms_norm 150000", 0, 0, [&] { bench.k.rms_norm(x.data(), y.data(), out.data(), n, 1e-5f); });
}

}  // namespace
}  // namespace mlxlm

int main(int argc, char** argv) {
  const mlxlm::Kernels& kernels = mlxlm::select_kernels(argc > 1 ? argv[1] : "");
  const mlxlm::MachineLimits limits = mlxlm::measure_machine(1, kernels.isa);
  std::printf("%s, one thread: plain read %.1f GB/s, float32 FMA %.1f GMAC/s\n", kernels.isa, limits.read_gb_per_s,
              limits.float32_gmac_per_s);
  mlxlm::Bench bench(kernels, argc > 2 ? argv[2] : "");
  mlxlm::bench_rows(bench);
  mlxlm::bench_matmul(bench);
  mlxlm::bench_attention(bench);
  return 0;
}
