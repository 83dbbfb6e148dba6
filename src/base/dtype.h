// Element types of tensors, with the names safetensors gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mlxlm {

enum class DType : uint8_t { f32, f16, bf16, u8, i8, u16, i16, u32, i32, u64, i64, f64, boolean };

/// Bytes per element.
constexpr size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::boolean:
      return 1;
    case DType::f16:
    case DType::bf16:
    case DType::u16:
    case DType::i16:
      return 2;
    case DType::f32:
    case DType::u32:
    case DType::i32:
      return 4;
    case DType::u64:
    case DType::i64:
    case DType::f64:
      return 8;
  }
  return 0;
}

/// "F32", "BF16", "U32", … as in a safetensors header.
const char* dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

constexpr bool is_float16_like(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
constexpr bool is_weight_float(DType dtype) { return dtype == DType::f32 || is_float16_like(dtype); }

}  // namespace mlxlm
