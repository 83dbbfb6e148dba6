// Feeding an executor and comparing what it gives, bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "models/registry.h"
#include "nn/executor.h"

namespace mlxlm::test {

inline std::unique_ptr<nn::Executor> make_executor(const std::shared_ptr<const io::ModelFolder>& folder,
                                                   const nn::ExecutorOptions& options) {
  const nn::ModelSpec spec = models::build_spec(*folder);
  return std::make_unique<nn::Executor>(spec, nn::bind_weights(folder, spec), options);
}

/// Ids below 96; another salt gives others.
inline std::vector<int32_t> make_tokens(int n, int salt) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * i + salt * i + 3 * salt) % 96);
  return tokens;
}

/// Logits of every position, fed in chunks.
inline std::vector<float> feed(nn::Executor& executor, nn::KvSequence& sequence, std::span<const int32_t> tokens,
                               size_t chunk) {
  std::vector<float> all, part;
  for (size_t i = 0; i < tokens.size(); i += chunk) {
    const nn::Span span{&sequence, tokens.subspan(i, std::min(chunk, tokens.size() - i)), nn::Rows::all};
    executor.forward({&span, 1}, part);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// The same in a sequence of its own.
inline std::vector<float> feed(nn::Executor& executor, std::span<const int32_t> tokens, size_t chunk,
                               const nn::KvOptions& options = {}) {
  nn::KvSequence sequence = executor.new_sequence(options);
  return feed(executor, sequence, tokens, chunk);
}

inline void expect_same_bits(std::span<const float> expected, std::span<const float> got) {
  ASSERT_EQ(expected.size(), got.size());
  ASSERT_EQ(std::memcmp(expected.data(), got.data(), expected.size_bytes()), 0);
}

}  // namespace mlxlm::test
