// Writing safetensors files piece by piece, so that no more than one tensor need be in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "io/files.h"

namespace mlxlm::io {

/// What the header says about a tensor that is still to come.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;

  /// Elements times their size. Throws Error on overflow or a negative extent.
  size_t bytes() const;
};

/// Writes the header at once and takes the data of the tensors in the same order, in pieces of any size.
/// The file appears under its name with finish(); without it nothing remains.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::span<const TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata);

  void write(std::span<const std::byte> bytes);
  /// Throws Error(internal) when more or less data came than the header announced.
  void finish();

 private:
  std::string path_;
  OutputFile file_;
  size_t expected_ = 0;
  size_t written_ = 0;
};

}  // namespace mlxlm::io
