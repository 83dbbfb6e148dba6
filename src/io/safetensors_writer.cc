#include "io/safetensors_writer.h"

#include <array>
#include <unordered_set>

#include "base/error.h"
#include "base/format.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace mlxlm::io {
namespace {

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw_invalid("cannot write the name '{}' into a safetensors header: it is not valid UTF-8", text);
  }
}

}  // namespace

size_t TensorInfo::bytes() const {
  size_t n = dtype_size(dtype);
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(n, static_cast<size_t>(extent), &n)) {
      throw_invalid("tensor '{}': shape {} cannot be written", name, shape_text(shape));
    }
  }
  return n;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) header += quoted(key) + ":" + quoted(value) + ",";
    header.back() = '}';
    header += ",";
  }
  std::unordered_set<std::string> seen;
  for (const TensorInfo& tensor : tensors) {
    if (!seen.insert(tensor.name).second || tensor.name == "__metadata__") {
      throw_invalid("{}: cannot write two tensors called '{}'", path, tensor.name);
    }
    const size_t bytes = tensor.bytes();
    header += format_text("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},", quoted(tensor.name),
                          dtype_name(tensor.dtype), join(tensor.shape, ","), expected_, expected_ + bytes);
    expected_ += bytes;
  }
  if (header.size() > 1) header.pop_back();
  header += "}";

  std::array<std::byte, 8> length{};
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<std::byte>(uint64_t{header.size()} >> (8 * i));
  file_.write(length);
  file_.write(std::as_bytes(std::span(header.data(), header.size())));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > expected_ - written_) {
    throw_error(ErrorKind::internal, "{}: more data than the header's {} bytes", path_, expected_);
  }
  file_.write(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  if (written_ != expected_) {
    throw_error(ErrorKind::internal, "{}: {} bytes of data, the header says {}", path_, written_, expected_);
  }
  file_.commit();
}

void write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  for (const TensorView& tensor : tensors) {
    infos.push_back({tensor.name, tensor.dtype, tensor.shape});
    if (infos.back().bytes() != tensor.bytes) {
      throw_invalid("{}: tensor '{}': shape {} of {} needs {} bytes, got {}", path, tensor.name,
                    shape_text(tensor.shape), dtype_name(tensor.dtype), infos.back().bytes(), tensor.bytes);
    }
  }
  SafetensorsWriter writer(path, infos, metadata);
  for (const TensorView& tensor : tensors) writer.write({tensor.data, tensor.bytes});
  writer.finish();
}

}  // namespace mlxlm::io
