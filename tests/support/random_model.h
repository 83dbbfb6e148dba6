// Tiny model folders with random weights, for tests that need no reference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/model_folder.h"

namespace mlxlm::test {

struct RandomModelOptions {
  io::Json config;  ///< model_type and sizes
  int bits = 0;     ///< 0: dense
  int group_size = 32;
  DType dtype = DType::f32;  ///< of dense weights, scales and biases
  uint64_t seed = 1;
  bool mixed = false;  ///< v_proj and down_proj get 8 bits instead, as mixed-width recipes do
};

/// Writes config.json and model.safetensors into a fresh folder under the system's temporary directory and opens it.
std::shared_ptr<const io::ModelFolder> make_random_model(const RandomModelOptions& options);

/// The same, left on disk with a byte-level tokenizer (token id = byte; the vocabulary must be 256). Returns the
/// folder, which the caller removes.
std::string write_random_model(const RandomModelOptions& options);

/// A config with hidden size 64, 4 heads, 2 KV heads, head_dim 16 and a vocabulary of 96.
io::Json tiny_config(const std::string& model_type);

}  // namespace mlxlm::test
