// Test tool: token ids on standard input, fed with the given KV options. On standard output, as raw bytes: the logits
// of every position in float32; or, where a layer is named, its keys and then its values, [n_kv_heads, n, head_dim] in
// float32, or as codes: words, scales and biases of the keys, then of the values.
// kv_probe DIR PRECISION CHUNK MAX_SIZE KEEP BITS GROUP_SIZE START [LAYER]
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/model_impl.h"
#include "mlxlm/mlxlm.h"

namespace {

template <typename T>
void write(const std::vector<T>& values) {
  if (std::fwrite(values.data(), sizeof(T), values.size(), stdout) != values.size()) {
    throw std::runtime_error("cannot write");
  }
}

void write_rows(const mlxlm::nn::KvSequence& sequence, int layer) {
  const int64_t n = sequence.length();
  const mlxlm::KvLayout layout = sequence.layout(layer);
  if (sequence.quantized()) {
    mlxlm::nn::KvCodes k, v;
    sequence.read_codes(layer, 0, n, k, v);
    for (const auto* part : {&k, &v}) {
      write(part->codes);
      write(part->scales);
      write(part->biases);
    }
    return;
  }
  std::vector<float> k(static_cast<size_t>(layout.n_kv_heads * n * layout.head_dim)), v(k.size());
  sequence.read_layer(layer, 0, n, k.data(), v.data());
  write(k);
  write(v);
}

void run(const std::vector<std::string>& args) {
  mlxlm::LoadOptions options;
  options.precision = args[1] == "exact" ? mlxlm::Precision::exact : mlxlm::Precision::fast;
  const auto chunk = static_cast<size_t>(std::stoul(args[2]));
  const mlxlm::nn::KvOptions kv{.max_size = std::stol(args[3]),
                                .keep = std::stol(args[4]),
                                .bits = std::stoi(args[5]),
                                .group_size = std::stoi(args[6]),
                                .quantized_start = std::stol(args[7])};
  const std::vector<int32_t> ids{std::istream_iterator<int32_t>(std::cin), std::istream_iterator<int32_t>()};
  const mlxlm::Loaded loaded = mlxlm::load(args[0], options);
  mlxlm::nn::Executor& executor = loaded.model.impl().executor();
  mlxlm::nn::KvSequence sequence = executor.new_sequence(kv);
  std::vector<float> logits;
  for (size_t i = 0; i < ids.size(); i += chunk) {
    const size_t n = std::min(chunk, ids.size() - i);
    const mlxlm::nn::Span span{&sequence, std::span(ids).subspan(i, n), mlxlm::nn::Rows::all};
    executor.forward({&span, 1}, logits);
    if (args.size() == 8) write(logits);
  }
  if (args.size() == 9) write_rows(sequence, std::stoi(args[8]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9 && argc != 10) {
    std::fprintf(stderr, "usage: kv_probe DIR fast|exact CHUNK MAX_SIZE KEEP BITS GROUP_SIZE START [LAYER] < ids\n");
    return 2;
  }
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kv_probe: %s\n", error.what());
    return 1;
  }
  return 0;
}
