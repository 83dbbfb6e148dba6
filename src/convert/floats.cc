#include "convert/floats.h"

#include <cstring>

namespace mlxlm::conversion {
namespace {

template <typename Decode>
void load_words(const std::byte* from, std::span<float> to, Decode decode) {
  for (size_t i = 0; i < to.size(); ++i) {
    uint16_t word = 0;
    std::memcpy(&word, from + 2 * i, sizeof word);
    to[i] = decode(word);
  }
}

template <typename Encode>
void store_words(std::span<const float> from, std::byte* to, Encode encode) {
  for (size_t i = 0; i < from.size(); ++i) {
    const uint16_t word = encode(from[i]);
    std::memcpy(to + 2 * i, &word, sizeof word);
  }
}

}  // namespace

void load_floats(const std::byte* from, DType dtype, std::span<float> to) {
  if (dtype == DType::f32) {
    std::memcpy(to.data(), from, to.size_bytes());
  } else if (dtype == DType::f16) {
    load_words(from, to, half_to_float);
  } else {
    load_words(from, to, bfloat16_to_float);
  }
}

void store_floats(std::span<const float> from, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from.data(), from.size_bytes());
  } else if (dtype == DType::f16) {
    store_words(from, to, float_to_half);
  } else {
    store_words(from, to, float_to_bfloat16);
  }
}

}  // namespace mlxlm::conversion
