// Any bytes as a GGUF file: an Error, or a plan whose every row can be repacked into the bytes that its header
// promises.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "convert/gguf_model.h"
#include "convert/gguf_tokenizer.h"
#include "convert/gguf_weights.h"
#include "io/gguf.h"
#include "mlxlm/error.h"

namespace mlxlm {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_tensors(const io::GgufFile& file, std::span<const std::byte> all) {
  for (const io::GgufTensor& tensor : file.tensors()) {
    if (tensor.data == nullptr) continue;
    require(tensor.data >= all.data() && tensor.data + tensor.bytes <= all.data() + all.size());
  }
}

// One action may fail; the others are tried nevertheless.
template <typename Action>
void attempt(const Action& action) {
  try {
    action();
  } catch (const Error&) {
    return;
  }
}

void repack(const io::GgufFile& file) {
  const conversion::ModelPlan plan = conversion::plan_model(file);
  for (const conversion::WeightPlan& weight : plan.weights) {
    for (const conversion::OutputTensor& tensor : conversion::output_tensors(weight, file.path())) {
      std::vector<std::byte> bytes;
      conversion::append_rows(tensor, 0, weight.rows(), bytes);
      require(bytes.size() == tensor.info.bytes());
    }
  }
}

void read_every_key(const io::GgufFile& file) {
  for (const auto& entry : file.metadata()) {
    const std::string& key = entry.first;
    attempt([&] { file.find_integer(key); });
    attempt([&] { file.find_number(key); });
    attempt([&] { file.find_strings(key); });
    attempt([&] { file.find_integers(key); });
    attempt([&] { file.find_floats(key); });
  }
}

int run(const uint8_t* data, size_t size) {
  const auto mapped = io::MappedFile::from_bytes("input.gguf", std::as_bytes(std::span(data, size)));
  attempt([&] {
    const auto file = io::GgufFile::parse(mapped);
    check_tensors(file, mapped->bytes());
    read_every_key(file);
    attempt([&] { repack(file); });
    attempt([&] { conversion::plan_tokenizer(file, 512).tokenizer.dump(); });
  });
  return 0;
}

}  // namespace
}  // namespace mlxlm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return mlxlm::run(data, size); }
