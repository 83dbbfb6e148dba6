#include "arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace mlxlm::python {
namespace {

// Ids for which room is made at first; it doubles.
constexpr size_t kFirstCapacity = 1024;

template <typename T>
nb::capsule keeper(T value) {
  return nb::capsule(new T(std::move(value)), [](void* p) noexcept { delete static_cast<T*>(p); });
}

nb::module_ array_helpers() { return nb::module_::import_("mlxlm._arrays"); }

// NaN and +inf, found in the bits, which compilers vectorise.
bool has_nan_or_inf(std::span<const float> row) {
  constexpr uint32_t kInf = 0x7f800000, kMagnitude = 0x7fffffff;
  uint32_t bad = 0;
  for (const float x : row) {
    const auto bits = std::bit_cast<uint32_t>(x);
    bad |= static_cast<uint32_t>(bits == kInf) | static_cast<uint32_t>((bits & kMagnitude) > kInf);
  }
  return bad != 0;
}

using FloatRow = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

// Whether the shape is [vocab], or that behind dimensions of 1.
bool is_row(const FloatRow& array, size_t vocab) {
  if (array.ndim() == 0 || array.size() != vocab) return false;
  return array.shape(array.ndim() - 1) == vocab;
}

}  // namespace

nb::object view_row(const RowMemory& memory, std::span<float> values) {
  return nb::cast(nb::ndarray<nb::numpy, float>(values.data(), {1, values.size()}, keeper(memory)));
}

nb::object own_array(std::vector<float> values, std::initializer_list<size_t> shape) {
  auto memory = std::make_unique<std::vector<float>>(std::move(values));
  float* data = memory->data();
  const nb::capsule owner(memory.release(), [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, float>(data, shape, owner));
}

nb::object TokenHistory::view(std::span<const int32_t> tokens) {
  const size_t held = ids_ ? ids_->size() : 0;
  if (!ids_ || tokens.size() < held || tokens.size() > ids_->capacity()) {
    auto fresh = std::make_shared<std::vector<int32_t>>();
    fresh->reserve(std::max(kFirstCapacity, std::bit_ceil(tokens.size() + 1)));
    fresh->assign(tokens.begin(), tokens.end());
    ids_ = std::move(fresh);
  } else {
    ids_->insert(ids_->end(), tokens.begin() + static_cast<std::ptrdiff_t>(held), tokens.end());
  }
  return nb::cast(nb::ndarray<nb::numpy, const int32_t>(ids_->data(), {tokens.size()}, keeper(ids_)));
}

void store_logits(const nb::object& result, const nb::object& given, std::span<float> row, const char* callable) {
  if (!result.is(given)) {
    FloatRow array;
    if (result.is_none() || !nb::try_cast(result, array, false) || !is_row(array, row.size())) {
      array = nb::cast<FloatRow>(array_helpers().attr("as_logits")(result, row.size(), callable));
    }
    if (array.data() != row.data()) std::memmove(row.data(), array.data(), row.size_bytes());
  }
  if (has_nan_or_inf(row)) array_helpers().attr("refuse_logits")(callable);
}

int32_t token_of(const nb::object& result, const char* callable) {
  int32_t token = 0;
  if (PyLong_Check(result.ptr()) && !PyBool_Check(result.ptr()) && nb::try_cast(result, token, false)) return token;
  return nb::cast<int32_t>(array_helpers().attr("as_token")(result, callable));
}

}  // namespace mlxlm::python
