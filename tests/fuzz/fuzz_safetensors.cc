// Any bytes as a safetensors file: an Error, or tensors that lie inside the file and have the bytes their shape says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/dtype.h"
#include "io/safetensors.h"
#include "mlxlm/error.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = mlxlm::io::MappedFile::from_bytes("input", std::as_bytes(std::span(data, size)));
  try {
    const auto parsed = mlxlm::io::SafetensorsFile::parse(file);
    for (const auto& tensor : parsed.tensors()) {
      size_t elements = 1;
      for (const int64_t dim : tensor.shape) {
        require(dim >= 0);
        require(!__builtin_mul_overflow(elements, static_cast<size_t>(dim), &elements));
      }
      require(elements * mlxlm::dtype_size(tensor.dtype) == tensor.bytes);
      const std::span<const std::byte> all = file->bytes();
      if (tensor.bytes == 0) continue;
      require(tensor.data >= all.data() && tensor.data + tensor.bytes <= all.data() + all.size());
    }
  } catch (const mlxlm::Error&) {
    return 0;
  }
  return 0;
}
