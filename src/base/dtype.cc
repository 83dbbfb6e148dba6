#include "base/dtype.h"

#include <array>
#include <utility>

namespace mlxlm {
namespace {

constexpr std::array<std::pair<DType, const char*>, 13> kNames = {{
    {DType::f32, "F32"},
    {DType::f16, "F16"},
    {DType::bf16, "BF16"},
    {DType::u8, "U8"},
    {DType::i8, "I8"},
    {DType::u16, "U16"},
    {DType::i16, "I16"},
    {DType::u32, "U32"},
    {DType::i32, "I32"},
    {DType::u64, "U64"},
    {DType::i64, "I64"},
    {DType::f64, "F64"},
    {DType::boolean, "BOOL"},
}};

}  // namespace

const char* dtype_name(DType dtype) {
  for (const auto& [type, name] : kNames) {
    if (type == dtype) return name;
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& [type, known] : kNames) {
    if (name == known) return type;
  }
  return std::nullopt;
}

}  // namespace mlxlm
