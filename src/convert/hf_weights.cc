#include "convert/hf_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "base/error.h"
#include "convert/affine.h"
#include "convert/floats.h"

namespace mlxlm::conversion {
namespace {

// What one thread computes before the next block: long enough to be worth handing out, short enough to stay in cache.
constexpr int64_t kBlockWeights = int64_t{1} << 17;
// Blocks per thread between two writes: the threads wait for one another, and for the file, only then.
constexpr int64_t kBlocksPerThread = 4;
constexpr size_t kCopyBytes = size_t{1} << 22;

size_t size(int64_t n) { return static_cast<size_t>(n); }

/// True when one of the values is infinite or NaN.
bool any_not_finite(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  return largest >= 0x7f800000u;
}

/// Reads values of the tensor, starting at `from`, as `dtype` would hold them.
void load_as(const io::TensorView& tensor, const std::byte* from, DType dtype, std::span<float> to) {
  load_floats(from, tensor.dtype, to);
  if (dtype == tensor.dtype || dtype == DType::f32) return;
  const bool were_finite = !any_not_finite(to);
  for (float& value : to) value = round_to(value, dtype);
  if (were_finite && any_not_finite(to)) {
    throw_invalid("tensor '{}': a value is beyond the range of {}; choose another dtype", tensor.name,
                  dtype == DType::f16 ? "float16 (65504)" : "bfloat16");
  }
}

}  // namespace

void TensorProducer::produce(const PlannedTensor& tensor, TensorSink& sink) {
  switch (tensor.action) {
    case Action::cast:
      return tensor.info.dtype == tensor.source->dtype ? copy(tensor, sink) : cast(tensor, sink);
    case Action::dequantize:
      return dequantize(tensor, sink);
    case Action::quantize:
      if (tensor.part == QuantPart::codes) return quantize(tensor, sink);
      return sink.write(tensor.part == QuantPart::scales ? scales_ : biases_);
  }
}

template <typename Fill>
void TensorProducer::stream(const PlannedTensor& tensor, int64_t rows, int64_t cols, int64_t source_row_bytes,
                            TensorSink& sink, Fill fill) {
  const int64_t row_bytes = static_cast<int64_t>(tensor.info.bytes()) / rows;
  const int64_t block = std::max<int64_t>(1, kBlockWeights / cols);
  const int64_t region = block * kBlocksPerThread * pool_.size();
  std::vector<std::byte> out(size(std::min(rows, region) * row_bytes));
  for (int64_t first = 0; first < rows; first += region) {
    const int64_t n = std::min(region, rows - first);
    pool_.tasks((n + block - 1) / block, [&](int64_t task, int) {
      const int64_t lo = task * block;
      fill(first + lo, first + std::min(n, lo + block), out.data() + lo * row_bytes);
    });
    sink.write(std::span(out).first(size(n * row_bytes)));
    folder_.release(*tensor.source, {tensor.source->data + first * source_row_bytes, size(n * source_row_bytes)});
  }
}

void TensorProducer::copy(const PlannedTensor& tensor, TensorSink& sink) {
  const std::span<const std::byte> all(tensor.source->data, tensor.source->bytes);
  for (size_t at = 0; at < all.size(); at += kCopyBytes) {
    const auto piece = all.subspan(at, std::min(kCopyBytes, all.size() - at));
    sink.write(piece);
    folder_.release(*tensor.source, piece);
  }
}

void TensorProducer::cast(const PlannedTensor& tensor, TensorSink& sink) {
  const io::TensorView& source = *tensor.source;
  const int64_t cols = source.shape.back();
  const auto rows = static_cast<int64_t>(source.bytes / dtype_size(source.dtype)) / cols;
  const int64_t source_row_bytes = cols * static_cast<int64_t>(dtype_size(source.dtype));
  const auto fill = [&](int64_t first, int64_t end, std::byte* out) {
    std::vector<float> values(size((end - first) * cols));
    load_as(source, source.data + first * source_row_bytes, tensor.info.dtype, values);
    store_floats(values, tensor.info.dtype, out);
  };
  stream(tensor, rows, cols, source_row_bytes, sink, fill);
}

void TensorProducer::quantize(const PlannedTensor& tensor, TensorSink& sink) {
  const io::TensorView& source = *tensor.source;
  const int64_t rows = source.shape[0], cols = source.shape[1];
  const int64_t source_row_bytes = cols * static_cast<int64_t>(dtype_size(source.dtype));
  const int64_t row_bytes = cols * tensor.format.bits / 8;
  const int64_t groups = cols / tensor.format.group_size;
  const auto group_bytes = static_cast<int64_t>(dtype_size(tensor.compute));
  scales_.resize(size(rows * groups * group_bytes));
  biases_.resize(scales_.size());
  const auto fill = [&](int64_t first, int64_t end, std::byte* out) {
    std::vector<float> values(size(cols)), scales(size(groups)), biases(size(groups));
    for (int64_t row = first; row < end; ++row, out += row_bytes) {
      load_as(source, source.data + row * source_row_bytes, tensor.compute, values);
      if (any_not_finite(values)) {
        throw_invalid("{}: tensor '{}': row {} holds a value that is infinite or not a number; it cannot be quantised",
                      folder_.file_of(source), source.name, row);
      }
      quantize_row(values, tensor.format, out, scales.data(), biases.data());
      if (any_not_finite(scales)) {
        throw_invalid("{}: tensor '{}': the range of row {} overflows float32; it cannot be quantised",
                      folder_.file_of(source), source.name, row);
      }
      store_floats(scales, tensor.compute, scales_.data() + row * groups * group_bytes);
      store_floats(biases, tensor.compute, biases_.data() + row * groups * group_bytes);
    }
  };
  stream(tensor, rows, cols, source_row_bytes, sink, fill);
}

void TensorProducer::dequantize(const PlannedTensor& tensor, TensorSink& sink) {
  const io::TensorView& codes = *tensor.source;
  const int64_t rows = tensor.info.shape[0], cols = tensor.info.shape[1];
  const int64_t groups = cols / tensor.format.group_size;
  const int64_t source_row_bytes = cols * tensor.format.bits / 8;
  const int64_t row_bytes = cols * static_cast<int64_t>(dtype_size(tensor.compute));
  const auto group_row = [&](const io::TensorView& view, int64_t row, std::span<float> to) {
    load_as(view, view.data + row * groups * static_cast<int64_t>(dtype_size(view.dtype)), tensor.compute, to);
  };
  const auto fill = [&](int64_t first, int64_t end, std::byte* out) {
    std::vector<float> values(size(cols)), scales(size(groups)), biases(size(groups));
    for (int64_t row = first; row < end; ++row, out += row_bytes) {
      group_row(*tensor.scales, row, scales);
      group_row(*tensor.biases, row, biases);
      dequantize_row(codes.data + row * source_row_bytes, scales.data(), biases.data(), tensor.format, tensor.compute,
                     values);
      store_floats(values, tensor.compute, out);
    }
  };
  stream(tensor, rows, cols, source_row_bytes, sink, fill);
  for (const io::TensorView* part : {tensor.scales, tensor.biases}) folder_.release(*part, {part->data, part->bytes});
}

}  // namespace mlxlm::conversion
