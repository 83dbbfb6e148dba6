// What the logits processors of this folder share.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "mlxlm/sampling.h"

namespace mlxlm::sampling {

inline constexpr float kBanned = -std::numeric_limits<float>::infinity();

/// Bans the ids; those past the row are passed over (a draft's vocabulary may be shorter).
inline void ban(std::span<const int32_t> ids, std::span<float> logits) {
  for (const int32_t id : ids) {
    if (static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] = kBanned;
  }
}

/// Bans all but one id.
void ban_all_but(int32_t id, std::span<float> logits);

/// Throws Error(invalid_value) naming the processor for an id outside [0, vocab_size).
void require_ids(const char* processor, std::span<const int32_t> ids, int64_t vocab_size);

/// Remembers where generation began.
class GenerationStart {
 public:
  void set(const LogitsProcessor::Start& start) { prompt_length_ = start.prompt.size(); }
  /// What of the history was generated.
  std::span<const int32_t> generated(std::span<const int32_t> tokens) const {
    return tokens.subspan(prompt_length_ < tokens.size() ? prompt_length_ : tokens.size());
  }

 private:
  size_t prompt_length_ = 0;
};

/// A processor that is copied as it is.
template <typename Derived>
class CloneableProcessor : public LogitsProcessor {
 public:
  std::unique_ptr<LogitsProcessor> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

}  // namespace mlxlm::sampling
