// numpy arrays over memory of the library, and arrays of callers as spans.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mlxlm/sampling.h"

namespace mlxlm::python {

namespace nb = nanobind;

/// Token ids of the caller's: [n] int32, contiguous. Python's layer makes them of lists and other arrays.
using TokenArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline std::span<const int32_t> as_span(const TokenArray& ids) { return {ids.data(), ids.size()}; }
inline std::vector<int32_t> as_vector(const TokenArray& ids) { return {ids.data(), ids.data() + ids.size()}; }

/// A numpy array [1, n], writable, over `values`, which lie in `memory`; the array and its views keep the memory.
nb::object view_row(const RowMemory& memory, std::span<float> values);
/// A numpy array of this shape that owns the values.
nb::object own_array(std::vector<float> values, std::initializer_list<size_t> shape);

/// The ids of a growing history as read-only numpy arrays [n] int32. The ids are held in memory of their own, in which
/// the history only grows: a view costs nothing but the new ids, and stays as it is when the history goes on.
class TokenHistory {
 public:
  nb::object view(std::span<const int32_t> tokens);
  void reset() { ids_.reset(); }

 private:
  std::shared_ptr<std::vector<int32_t>> ids_;  // never grows past its capacity while views of it live
};

/// Copies what a processor returned into `row`, [vocab], unless it is `given`, the array over `row` itself. Raises
/// TypeError or ValueError naming the callable for a wrong shape, kind or value.
void store_logits(const nb::object& result, const nb::object& given, std::span<float> row, const char* callable);
/// The id that a sampler returned: an int, or an array of integers with one element.
int32_t token_of(const nb::object& result, const char* callable);

}  // namespace mlxlm::python
