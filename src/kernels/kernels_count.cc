// Runs one kernel once inside a function of a known name, so that an instruction counter can tell its work from the
// rest: kernels_count ISA NAME. Without a name it lists them. See tests/structure/test_instruction_counts.py.
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/kernels.h"

/// What is counted: valgrind's --toggle-collect names it.
extern "C" __attribute__((noinline)) void mlxlm_counted(const std::function<void()>& kernel) {
  kernel();
  asm volatile("" ::: "memory");
}

namespace mlxlm {
namespace {

/// Bits that are finite in every float type, the same at every start.
std::vector<std::byte> some_bytes(int64_t n) {
  std::vector<std::byte> bytes(static_cast<size_t>(n));
  uint32_t state = 1;
  for (size_t i = 0; i < bytes.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    bytes[i] = static_cast<std::byte>(i % 2 == 0 ? state >> 24 : 0x30 | (state >> 31 << 7) | (state >> 28 & 7));
  }
  return bytes;
}

std::vector<float> some_floats(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i * 37 % 101 - 50) / 25;
  return values;
}

class Cases {
 public:
  explicit Cases(const Kernels& kernels) : k_(kernels), scratch_(kScratchBytes) {
    for (const int bits : {2, 3, 4, 8}) {
      for (const int tokens : {1, 4, 16, 64}) add_affine(bits, tokens);
    }
    for (const int tokens : {1, 16}) add_exact(tokens);
    for (const int queries : {1, 64}) {
      add_attention("f16", {3, 64, 64, DType::f16, 0, 0}, queries);
      add_attention("8-bit", {3, 64, 64, DType::f16, 8, 64}, queries);
    }
    add_rows();
  }

  const std::map<std::string, std::function<void()>>& all() const { return cases_; }

 private:
  void add(const std::string& name, std::function<void()> prepare, std::function<void()> kernel) {
    cases_[name] = [prepare = std::move(prepare), kernel = std::move(kernel)] {
      if (prepare) prepare();
      mlxlm_counted(kernel);
    };
  }

  Matrix matrix(int bits) {
    constexpr int64_t kRows = 64, kCols = 1024;
    Matrix w;
    w.rows = kRows;
    w.cols = kCols;
    w.dtype = DType::f16;
    w.bits = bits;
    w.group_size = 64;
    w.data = keep_bytes(w.rows * w.row_bytes());
    w.scales = keep_bytes(w.rows * w.scale_row_bytes());
    w.biases = keep_bytes(w.rows * w.scale_row_bytes());
    return w;
  }

  void add_affine(int bits, int64_t tokens) {
    const Matrix w = matrix(bits);
    const int pack_class = k_.pack_class(bits);
    const float* x = keep_floats(tokens * w.cols);
    std::byte* packed = keep_bytes(static_cast<int64_t>(k_.packed_bytes(pack_class, tokens, w.cols)));
    float* out = keep_floats(tokens * w.rows);
    const auto pack = [=, this] { k_.pack_activations(pack_class, x, tokens, w.cols, 0, tokens, packed); };
    const std::string suffix = std::to_string(bits) + "-bit, " + std::to_string(tokens) + " tokens";
    add("affine_matmul " + suffix, pack,
        [=, this] { k_.affine_matmul(w, packed, tokens, 0, w.rows, out, w.rows, scratch_.data()); });
    if (bits == 4 || bits == 8) add("pack_activations " + suffix, nullptr, pack);
  }

  void add_exact(int64_t tokens) {
    const Matrix w = matrix(4);
    const float* x = keep_floats(tokens * w.cols);
    float* out = keep_floats(tokens * w.rows);
    add("float_matmul 4-bit, " + std::to_string(tokens) + " tokens", nullptr,
        [=, this] { k_.float_matmul(w, x, tokens, 0, w.rows, out, w.rows, scratch_.data()); });
  }

  void add_attention(const std::string& format, const KvLayout& layout, int64_t queries) {
    constexpr int64_t kKeys = 512, kRep = 3;
    AttentionTask task;
    const int64_t width = kRep * layout.head_dim;
    task.q = keep_floats(queries * width);
    task.out = keep_floats(queries * width);
    task.q_stride = task.out_stride = width;
    task.n_queries = queries;
    task.n_rep = kRep;
    task.position = kKeys - queries;
    task.head_dim = layout.head_dim;
    task.value_dim = layout.value_dim;
    task.dtype = layout.dtype;
    task.bits = layout.bits;
    task.group_size = layout.group_size;
    auto& blocks = blocks_.emplace_back();
    for (int64_t i = 0; i < kKeys / kKvBlockTokens; ++i) blocks.push_back(keep_bytes(layout.layer_bytes()));
    task.blocks = blocks.data();
    add("attention " + format + ", " + std::to_string(queries) + " queries", nullptr,
        [task, this] { k_.attention(task, scratch_.data()); });
  }

  void add_rows() {
    constexpr int64_t kN = 4096;
    const float* x = keep_floats(kN);
    const float* y = keep_floats(kN);
    float* out = keep_floats(kN);
    add("rms_norm", nullptr, [=, this] { k_.rms_norm(x, y, out, kN, 1e-5f); });
    add("gated silu", nullptr, [=, this] { k_.gated(Activation::silu, x, y, out, kN); });
    add("log_sum_exp", nullptr, [=, this] { *out = k_.log_sum_exp(x, kN); });
    add("argmax", nullptr, [=, this] { *out = static_cast<float>(k_.argmax(x, kN)); });
  }

  std::byte* keep_bytes(int64_t n) { return bytes_.emplace_back(some_bytes(n + 64)).data(); }
  float* keep_floats(int64_t n) { return floats_.emplace_back(some_floats(n)).data(); }

  const Kernels& k_;
  std::vector<std::byte> scratch_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<const std::byte*>> blocks_;
  std::map<std::string, std::function<void()>> cases_;
};

}  // namespace
}  // namespace mlxlm

int main(int argc, char** argv) {
  const mlxlm::Kernels& kernels = mlxlm::select_kernels(argc > 1 ? argv[1] : "");
  const mlxlm::Cases cases(kernels);
  if (argc < 3) {
    for (const auto& [name, run] : cases.all()) std::printf("%s\n", name.c_str());
    return 0;
  }
  const auto found = cases.all().find(argv[2]);
  if (found == cases.all().end()) {
    std::fprintf(stderr, "kernels_count: no case '%s'; without a name the cases are listed\n", argv[2]);
    return 2;
  }
  found->second();
  return 0;
}
