// Where a token's time goes, and how near each part of a pass is to the machine's limit.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "io/json.h"
#include "kernels/peak.h"
#include "nn/executor.h"

namespace mlxlm::cli {

/// What the passes of one measurement must at least read and multiply, by part.
struct PassCosts {
  struct Part {
    double bytes = 0;         ///< weights once per pass; keys and values once per pass and sequence
    double int8_macs = 0;     ///< multiply-adds of products with activations in int8
    double float32_macs = 0;  ///< all others
  };
  std::array<Part, nn::kPassParts> parts{};

  /// Adds a pass over `tokens` tokens of each of `sequences` sequences that hold `depth` positions before it, with
  /// `rows` rows of logits in all.
  void add_pass(const nn::Executor& executor, int64_t sequences, int64_t depth, int64_t tokens, int64_t rows);

 private:
  void add_product(const nn::Executor& executor, nn::PassPart part, const Matrix& w, int64_t rows);
};

/// One object for each part: part, seconds, bytes, macs, share_of_limit (the least time for its bytes or multiply-adds
/// at the machine's rates, by its real time).
io::Json profile_json(const nn::PassProfile& profile, const PassCosts& costs, const MachineLimits& limits);

/// The same as a table, with times per `unit` ("token") of which there were `count`.
std::string profile_text(const io::Json& parts, const std::string& title, const std::string& unit, int64_t count);

}  // namespace mlxlm::cli
