#include "engine/batch.h"

#include <algorithm>

#include "base/error.h"

namespace mlxlm::engine {

Batch::Id Batch::add(SequenceRequest request) {
  if (request.tokens.empty()) throw_invalid("a sequence of a batch needs at least one token");
  sampling::Sampler sampler(request.sampler, request.seed, executor_.kernels());
  if (request.prompt_progress) request.prompt_progress(0, static_cast<int64_t>(request.tokens.size()));
  slots_.push_back({next_id_, std::move(request), std::move(sampler)});
  return next_id_++;
}

void Batch::remove(Id id) {
  std::erase_if(slots_, [&](const Slot& slot) { return slot.id == id; });
}

std::vector<Batch::Result> Batch::step() {
  std::vector<nn::Span> spans;
  for (Slot& slot : slots_) {
    const size_t left = slot.request.tokens.size() - slot.fed;
    const size_t n = std::min(left, static_cast<size_t>(slot.request.prefill_step_size));
    spans.push_back({slot.request.kv, std::span(slot.request.tokens).subspan(slot.fed, n),
                     n == left ? nn::Rows::last : nn::Rows::none});
  }
  executor_.forward(spans, logits_);

  std::vector<Result> results;
  const auto vocab = static_cast<size_t>(executor_.spec().vocab_size);
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    slot.fed += spans[s].tokens.size();
    if (slot.in_prompt && slot.request.prompt_progress) {
      slot.request.prompt_progress(static_cast<int64_t>(slot.fed), static_cast<int64_t>(slot.request.tokens.size()));
    }
    if (spans[s].rows == nn::Rows::none) continue;
    const std::span<const float> logits(logits_.data() + results.size() * vocab, vocab);
    const sampling::Choice choice = slot.sampler.sample(logits, slot.request.kv->length());
    results.push_back({slot.id, choice, slot.sampler.log_normalizer(), logits});
    slot.request.tokens.assign(1, choice.token);
    slot.fed = 0;
    slot.in_prompt = false;
  }
  return results;
}

}  // namespace mlxlm::engine
