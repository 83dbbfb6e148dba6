// Logits processors that need no tokenizer.
#include "sampling/processors.h"

#include <algorithm>

#include "base/error.h"

namespace mlxlm {
namespace sampling {

void ban_all_but(int32_t id, std::span<float> logits) {
  const auto index = static_cast<size_t>(id);
  const float kept = index < logits.size() ? logits[index] : kBanned;
  std::fill(logits.begin(), logits.end(), kBanned);
  if (index < logits.size()) logits[index] = kept;
}

void require_ids(const char* processor, std::span<const int32_t> ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      throw_invalid("{}: expected token ids in [0, {}), the model's vocabulary; got {}", processor, vocab_size, id);
    }
  }
}

namespace {

class FunctionProcessor : public LogitsProcessor {
 public:
  FunctionProcessor(LogitsProcessorFunction function, std::string name)
      : function_(std::move(function)), name_(std::move(name)) {}

  void process(std::span<const int32_t> tokens, std::span<float> logits) override { function_(tokens, logits); }
  std::string name() const override { return name_; }

 private:
  LogitsProcessorFunction function_;
  std::string name_;
};

class BanTokenIds : public CloneableProcessor<BanTokenIds> {
 public:
  explicit BanTokenIds(std::vector<int32_t> ids) : ids_(std::move(ids)) {}

  void start(const Start& start) override { require_ids("ban_token_ids", ids_, start.vocab_size); }
  void process(std::span<const int32_t>, std::span<float> logits) override { ban(ids_, logits); }
  std::string name() const override { return "ban_token_ids"; }

 private:
  std::vector<int32_t> ids_;
};

class MinLength : public CloneableProcessor<MinLength> {
 public:
  explicit MinLength(int64_t tokens) : tokens_(tokens) {}

  void start(const Start& start) override {
    generation_.set(start);
    eos_.assign(start.eos_token_ids.begin(), start.eos_token_ids.end());
  }
  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    if (static_cast<int64_t>(generation_.generated(tokens).size()) < tokens_) ban(eos_, logits);
  }
  std::string name() const override { return "min_length"; }

 private:
  int64_t tokens_;
  std::vector<int32_t> eos_;
  GenerationStart generation_;
};

}  // namespace
}  // namespace sampling

std::shared_ptr<LogitsProcessor> make_logits_processor(LogitsProcessorFunction function, std::string name) {
  if (!function) throw_invalid("make_logits_processor: expected a function for {}, got an empty one", name);
  return std::make_shared<sampling::FunctionProcessor>(std::move(function), std::move(name));
}

std::shared_ptr<LogitsProcessor> ban_token_ids(std::vector<int32_t> ids) {
  for (const int32_t id : ids) {
    if (id < 0) throw_invalid("ban_token_ids: expected token ids of at least 0, got {}", id);
  }
  return std::make_shared<sampling::BanTokenIds>(std::move(ids));
}

std::shared_ptr<LogitsProcessor> min_length(int64_t tokens) {
  if (tokens < 0) throw_invalid("min_length: expected at least 0 tokens, got {}", tokens);
  return std::make_shared<sampling::MinLength>(tokens);
}

}  // namespace mlxlm
