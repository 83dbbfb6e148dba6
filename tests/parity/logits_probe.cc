// Test tool: token ids on standard input, the logits of every position as raw float32 on standard output.
// logits_probe DIR PRECISION CHUNK THREADS ISA
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/model_impl.h"
#include "mlxlm/mlxlm.h"

namespace {

int run(const std::vector<std::string>& args) {
  mlxlm::LoadOptions options;
  options.precision = args[1] == "exact" ? mlxlm::Precision::exact : mlxlm::Precision::fast;
  const auto chunk = static_cast<size_t>(std::stoul(args[2]));
  options.threads = std::stoi(args[3]);
  options.isa = args[4] == "best" ? "" : args[4];
  const std::vector<int32_t> ids{std::istream_iterator<int32_t>(std::cin), std::istream_iterator<int32_t>()};
  const mlxlm::Loaded loaded = mlxlm::load(args[0], options);
  mlxlm::nn::Executor& executor = loaded.model.impl().executor();
  mlxlm::nn::KvSequence sequence = executor.new_sequence();
  std::vector<float> logits;
  for (size_t i = 0; i < ids.size(); i += chunk) {
    const size_t n = std::min(chunk, ids.size() - i);
    const mlxlm::nn::Span span{&sequence, std::span(ids).subspan(i, n), mlxlm::nn::Rows::all};
    executor.forward({&span, 1}, logits);
    if (std::fwrite(logits.data(), sizeof(float), logits.size(), stdout) != logits.size()) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: logits_probe DIR fast|exact CHUNK THREADS ISA|best < ids\n");
    return 2;
  }
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "logits_probe: %s\n", error.what());
    return 1;
  }
}
