// Logit bias and the repetition, presence and frequency penalties.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "sampling/processors.h"

namespace mlxlm {
namespace sampling {
namespace {

/// The last tokens of the history that count.
class Window {
 public:
  /// size: 0 for all. prompt: whether the prompt counts.
  Window(int size, bool prompt) : size_(static_cast<size_t>(size)), prompt_(prompt) {}

  void start(const LogitsProcessor::Start& start) { generation_.set(start); }
  std::span<const int32_t> of(std::span<const int32_t> tokens) const {
    const auto counted = prompt_ ? tokens : generation_.generated(tokens);
    return size_ > 0 && counted.size() > size_ ? counted.last(size_) : counted;
  }

 private:
  size_t size_;
  bool prompt_;
  GenerationStart generation_;
};

/// Calls once for each different id of the tokens. Ids past the vocabulary are passed over (a draft's may be shorter).
class DistinctIds {
 public:
  template <typename F>
  void each(std::span<const int32_t> tokens, size_t vocab_size, const F& call) {
    if (seen_.size() != vocab_size || ++round_ == 0) {
      seen_.assign(vocab_size, 0);
      round_ = 1;
    }
    for (const int32_t token : tokens) {
      const auto id = static_cast<size_t>(token);
      if (id >= vocab_size || seen_[id] == round_) continue;
      seen_[id] = round_;
      call(id);
    }
  }

 private:
  std::vector<uint32_t> seen_;  // [vocab] the last round that met the id
  uint32_t round_ = 0;
};

class LogitBias : public CloneableProcessor<LogitBias> {
 public:
  explicit LogitBias(const std::vector<std::pair<int32_t, float>>& bias) : bias_(bias) {
    std::sort(bias_.begin(), bias_.end());
    for (size_t i = 0; i < bias_.size(); ++i) {
      const auto [id, value] = bias_[i];
      if (id < 0) throw_invalid("logit_bias: expected token ids of at least 0, got {}", id);
      if (!std::isfinite(value)) throw_invalid("logit_bias[{}]: expected a finite number, got {}", id, value);
      if (i > 0 && bias_[i - 1].first == id) throw_invalid("logit_bias[{}]: given twice", id);
    }
  }

  void start(const Start& start) override {
    for (const auto& [id, value] : bias_) require_ids("logit_bias", {&id, 1}, start.vocab_size);
  }
  void process(std::span<const int32_t>, std::span<float> logits) override {
    for (const auto& [id, value] : bias_) {
      if (static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] += value;
    }
  }
  std::string name() const override { return "logit_bias"; }

 private:
  std::vector<std::pair<int32_t, float>> bias_;
};

/// Changes the logit of each different id in the window once.
class DistinctPenalty : public CloneableProcessor<DistinctPenalty> {
 public:
  using Change = float (*)(float logit, float penalty);

  DistinctPenalty(const char* name, Change change, float penalty, Window window)
      : name_(name), change_(change), penalty_(penalty), window_(window) {}

  void start(const Start& start) override { window_.start(start); }
  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    distinct_.each(window_.of(tokens), logits.size(), [&](size_t id) { logits[id] = change_(logits[id], penalty_); });
  }
  std::string name() const override { return name_; }

 private:
  const char* name_;
  Change change_;
  float penalty_;
  Window window_;
  DistinctIds distinct_;
};

float repeated(float logit, float penalty) { return logit < 0 ? logit * penalty : logit / penalty; }
float present(float logit, float penalty) { return logit - penalty; }

class FrequencyPenalty : public CloneableProcessor<FrequencyPenalty> {
 public:
  FrequencyPenalty(float penalty, Window window) : penalty_(penalty), window_(window) {}

  void start(const Start& start) override { window_.start(start); }
  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    for (const int32_t token : window_.of(tokens)) {
      if (static_cast<size_t>(token) < logits.size()) logits[static_cast<size_t>(token)] -= penalty_;
    }
  }
  std::string name() const override { return "frequency_penalty"; }

 private:
  float penalty_;
  Window window_;
};

Window window_of(const char* option, int size, bool prompt) {
  if (size < 0) throw_invalid("{}: expected a number of tokens, or 0 for all; got {}", option, size);
  return Window(size, prompt);
}

void require_finite(const char* option, float value) {
  if (!std::isfinite(value)) throw_invalid("{}: expected a finite number, got {}", option, value);
}

std::vector<std::shared_ptr<LogitsProcessor>> processors_for(const LogitsProcessorOptions& o) {
  if (!(o.repetition_penalty >= 0 && std::isfinite(o.repetition_penalty))) {
    throw_invalid("repetition_penalty: expected a number of at least 0, got {}", o.repetition_penalty);
  }
  require_finite("presence_penalty", o.presence_penalty);
  require_finite("frequency_penalty", o.frequency_penalty);
  const Window repetition = window_of("repetition_context_size", o.repetition_context_size, true);
  const Window presence = window_of("presence_context_size", o.presence_context_size, o.penalize_prompt);
  const Window frequency = window_of("frequency_context_size", o.frequency_context_size, o.penalize_prompt);
  std::vector<std::shared_ptr<LogitsProcessor>> processors;
  if (!o.logit_bias.empty()) processors.push_back(std::make_shared<LogitBias>(o.logit_bias));
  if (o.repetition_penalty != 0 && o.repetition_penalty != 1) {
    processors.push_back(
        std::make_shared<DistinctPenalty>("repetition_penalty", repeated, o.repetition_penalty, repetition));
  }
  if (o.presence_penalty != 0) {
    processors.push_back(std::make_shared<DistinctPenalty>("presence_penalty", present, o.presence_penalty, presence));
  }
  if (o.frequency_penalty != 0) {
    processors.push_back(std::make_shared<FrequencyPenalty>(o.frequency_penalty, frequency));
  }
  return processors;
}

}  // namespace
}  // namespace sampling

std::vector<std::shared_ptr<LogitsProcessor>> make_logits_processors(const LogitsProcessorOptions& options) {
  return sampling::processors_for(options);
}

}  // namespace mlxlm
