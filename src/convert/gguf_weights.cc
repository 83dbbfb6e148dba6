#include "convert/gguf_weights.h"

#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "convert/floats.h"

namespace mlxlm::conversion {
namespace {

using io::GgufType;

constexpr float kMaxHalf = 65504.0f;

uint16_t load_half(const std::byte* p) {
  return static_cast<uint16_t>(std::to_integer<uint32_t>(p[0]) | std::to_integer<uint32_t>(p[1]) << 8);
}

template <typename T>
void append(std::vector<std::byte>& out, T value) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// Scale and bias of one block: weight = code · scale + bias.
struct Affine {
  float scale;
  float bias;
};

Affine block_affine(GgufType type, const std::byte* block) {
  const float d = half_to_float(load_half(block));
  if (type == GgufType::q4_1) return {d, half_to_float(load_half(block + 2))};
  return {d, type == GgufType::q4_0 ? -8.0f * d : -128.0f * d};
}

// A block keeps its first 16 weights in the low nibbles and the others in the high ones; MLX packs neighbours together.
void append_nibbles(const std::byte* quants, std::vector<std::byte>& out) {
  for (size_t i = 0; i < 16; i += 2) out.push_back((quants[i] & std::byte{15}) | (quants[i + 1] << 4));
  for (size_t i = 0; i < 16; i += 2) out.push_back((quants[i] >> 4) | (quants[i + 1] & std::byte{0xF0}));
}

void append_codes(GgufType type, const std::byte* block, std::vector<std::byte>& out) {
  if (type == GgufType::q4_0) return append_nibbles(block + 2, out);
  if (type == GgufType::q4_1) return append_nibbles(block + 4, out);
  for (size_t i = 0; i < kGgufGroupSize; ++i) out.push_back(block[2 + i] ^ std::byte{0x80});  // q + 128
}

/// The row of the file that holds a row of the result: GGUF orders a head's rows (first of half 0, first of half 1,
/// second of half 0, …).
int64_t source_row(const WeightPlan& plan, int64_t row, int64_t n_rows) {
  if (plan.interleaved_heads == 0) return row;
  const int64_t head_dim = n_rows / plan.interleaved_heads;
  const int64_t within = row % head_dim;
  const int64_t half = head_dim / 2;
  return row - within + 2 * (within % half) + within / half;
}

float load_float(GgufType type, const std::byte* p) {
  if (type == GgufType::f32) {
    float value = 0;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  const uint16_t bits = load_half(p);
  return type == GgufType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

DType dense_dtype(const WeightPlan& plan) {
  if (plan.minus_one) return DType::f32;
  switch (plan.source->type) {
    case GgufType::f16:
      return DType::f16;
    case GgufType::bf16:
      return DType::bf16;
    default:
      return DType::f32;
  }
}

// A bias vector's elements are the rows that rotary embeddings mix, so vectors are handled by element.
void append_dense(const WeightPlan& plan, int64_t begin, int64_t end, std::vector<std::byte>& out) {
  const GgufType type = plan.source->type;
  const auto element = static_cast<size_t>(io::gguf_block(type)->bytes);
  const bool vector = plan.source->shape.size() == 1;
  const int64_t n = vector ? plan.cols() : plan.rows();
  const size_t stride = vector ? element : element * static_cast<size_t>(plan.cols());
  if (vector) {
    begin = 0;
    end = n;
  }
  for (int64_t row = begin; row < end; ++row) {
    const std::byte* source = plan.source->data + static_cast<size_t>(source_row(plan, row, n)) * stride;
    if (!plan.minus_one) {
      out.insert(out.end(), source, source + stride);
      continue;
    }
    // The file holds fl(1 + w). Taking 1 off is exact from 0.5 up, and for every w that bfloat16 holds.
    for (size_t at = 0; at < stride; at += element) append(out, load_float(type, source + at) - 1.0f);
  }
}

bool half_suffices(const WeightPlan& plan, const std::string& path) {
  const GgufType type = plan.source->type;
  const auto block_bytes = static_cast<size_t>(io::gguf_block(type)->bytes);
  bool fits = true;
  for (size_t at = 0; at < plan.source->bytes; at += block_bytes) {
    const auto [scale, bias] = block_affine(type, plan.source->data + at);
    if (!std::isfinite(scale) || !std::isfinite(bias)) {
      throw_invalid("{}: tensor '{}': block {} has a scale or minimum that is not finite; the file is damaged", path,
                    plan.source->name, at / block_bytes);
    }
    fits &= std::abs(bias) <= kMaxHalf;
  }
  return fits;
}

}  // namespace

int weight_bits(const WeightPlan& plan) {
  switch (plan.source->type) {
    case GgufType::q4_0:
    case GgufType::q4_1:
      return 4;
    case GgufType::q8_0:
      return 8;
    default:
      return 0;
  }
}

std::vector<OutputTensor> output_tensors(const WeightPlan& plan, const std::string& path) {
  const int bits = weight_bits(plan);
  if (bits == 0) return {{plan, Part::dense, {plan.name, dense_dtype(plan), plan.source->shape}}};
  const std::string module = plan.name.substr(0, plan.name.rfind('.'));
  const DType dtype = half_suffices(plan, path) ? DType::f16 : DType::f32;
  const std::vector<int64_t> groups = {plan.rows(), plan.cols() / kGgufGroupSize};
  return {{plan, Part::codes, {plan.name, DType::u32, {plan.rows(), plan.cols() * bits / 32}}},
          {plan, Part::scales, {module + ".scales", dtype, groups}},
          {plan, Part::biases, {module + ".biases", dtype, groups}}};
}

void append_rows(const OutputTensor& tensor, int64_t begin, int64_t end, std::vector<std::byte>& out) {
  const WeightPlan& plan = tensor.plan;
  if (tensor.part == Part::dense) return append_dense(plan, begin, end, out);
  const GgufType type = plan.source->type;
  const int64_t blocks = plan.cols() / kGgufGroupSize;
  const int64_t block_bytes = io::gguf_block(type)->bytes;
  for (int64_t row = begin; row < end; ++row) {
    const std::byte* block = plan.source->data + source_row(plan, row, plan.rows()) * blocks * block_bytes;
    for (int64_t i = 0; i < blocks; ++i, block += block_bytes) {
      if (tensor.part == Part::codes) {
        append_codes(type, block, out);
        continue;
      }
      const auto [scale, bias] = block_affine(type, block);
      const float value = tensor.part == Part::scales ? scale : bias;
      if (tensor.info.dtype == DType::f32) {
        append(out, value);
      } else {
        append(out, float_to_half(value));  // exact: checked by half_suffices()
      }
    }
  }
}

}  // namespace mlxlm::conversion
