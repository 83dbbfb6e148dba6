// Computing the tensors of an HfPlan, a block of rows at a time on all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "convert/hf_plan.h"
#include "convert/weight_files.h"
#include "io/model_folder.h"

namespace mlxlm::conversion {

/// Produces the data of planned tensors in the plan's order: the scales and biases of a weight come with its codes.
/// Gives the source's pages back as it goes, so that memory stays far below the model's size. The result does not
/// depend on the number of threads.
class TensorProducer {
 public:
  TensorProducer(const io::ModelFolder& folder, int threads) : folder_(folder), pool_(threads) {}

  /// Throws Error naming the tensor when a value cannot be represented.
  void produce(const PlannedTensor& tensor, TensorSink& sink);

 private:
  void copy(const PlannedTensor& tensor, TensorSink& sink);
  void cast(const PlannedTensor& tensor, TensorSink& sink);
  void quantize(const PlannedTensor& tensor, TensorSink& sink);
  void dequantize(const PlannedTensor& tensor, TensorSink& sink);

  /// Lets `fill(first, end, out)` make rows [first, end) of the tensor on all threads and passes them on in order.
  /// `cols`: logical weights in a row; `source_row_bytes`: of tensor.source.
  template <typename Fill>
  void stream(const PlannedTensor& tensor, int64_t rows, int64_t cols, int64_t source_row_bytes, TensorSink& sink,
              Fill fill);

  const io::ModelFolder& folder_;
  ThreadPool pool_;
  std::vector<std::byte> scales_, biases_;  ///< of the weight whose codes came last
};

}  // namespace mlxlm::conversion
