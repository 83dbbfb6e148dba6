// model*.safetensors and their index, as mlx-lm writes them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convert/new_folder.h"
#include "io/safetensors_writer.h"
#include "mlxlm/convert.h"

namespace mlxlm::conversion {

/// Takes the bytes of one tensor, in pieces of any size.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
};

struct WeightFileOptions {
  int64_t parameters = 0;  ///< logical weights, for the index
  int64_t max_shard_bytes = 0;
  ConvertProgress progress{};
};

struct WeightFiles {
  int64_t bytes = 0;  ///< of the weight data
  int shards = 0;
};

/// Asks for the data of the tensors one after another in the order given, cuts them into files in this order, and
/// writes model.safetensors.index.json. A tensor larger than the limit gets a file of its own.
WeightFiles write_weight_files(const NewFolder& folder, std::span<const io::TensorInfo> tensors,
                               const WeightFileOptions& options,
                               const std::function<void(size_t index, TensorSink& sink)>& produce);

}  // namespace mlxlm::conversion
