#include "engine/draft_model.h"

#include <algorithm>

#include "base/error.h"

namespace mlxlm::engine {
namespace {

// Prompt tokens in one pass of the draft model: enough to use the machine well, few enough to stay in the caches.
constexpr size_t kPrefillStep = 512;

std::vector<std::unique_ptr<LogitsProcessor>> clones(std::span<const std::shared_ptr<LogitsProcessor>> processors) {
  std::vector<std::unique_ptr<LogitsProcessor>> copies;
  for (const auto& processor : processors) {
    if (auto copy = processor->clone()) copies.push_back(std::move(copy));
  }
  return copies;
}

// Both tokenizers must map the same ids to the same strings; rows of padding at the end of either vocabulary are
// nobody's tokens and do not count.
void check_draft_vocabulary(const ModelImpl& model, const ModelImpl& draft) {
  const Tokenizer& ours = model.tokenizer();
  const Tokenizer& theirs = draft.tokenizer();
  const int32_t n = std::min({ours.vocab_size(), theirs.vocab_size(), static_cast<int32_t>(model.info().vocab_size),
                              static_cast<int32_t>(draft.info().vocab_size)});
  const int32_t most = std::max(ours.vocab_size(), theirs.vocab_size());
  for (int32_t id = 0; id < most; ++id) {
    const auto a = ours.id_to_token(id);
    const auto b = theirs.id_to_token(id);
    if (a == b) continue;
    if (id >= n && (!a || !b)) continue;  // padding of one of them
    throw_invalid(
        "draft_model: token {} is \"{}\" in {} and \"{}\" in {}; a draft model needs the vocabulary of the model it "
        "drafts for",
        id, a.value_or(""), model.info().path, b.value_or(""), draft.info().path);
  }
}

}  // namespace

void ModelImpl::check_draft(const std::shared_ptr<ModelImpl>& draft) {
  const std::lock_guard lock(drafts_mutex_);
  std::erase_if(drafts_, [](const auto& known) { return known.expired(); });
  if (std::ranges::any_of(drafts_, [&](const auto& known) { return known.lock() == draft; })) return;
  check_draft_vocabulary(*this, *draft);
  drafts_.push_back(draft);
}

DraftModel::DraftModel(std::shared_ptr<ModelImpl> draft, int64_t target_vocab, const SamplerOptions& options,
                       std::span<const int32_t> xtc_special_tokens, uint64_t seed, double cost_of_a_guess)
    : draft_(std::move(draft)),
      vocab_(std::min(target_vocab, draft_->info().vocab_size)),
      sampler_(options, seed, draft_->executor().kernels(), xtc_special_tokens),
      cost_(cost_of_a_guess),
      kv_(draft_->executor().new_sequence()) {}

// Brings kv_ to hold all of the history but its last token.
void DraftModel::catch_up(std::span<const int32_t> history) {
  const auto same = std::mismatch(fed_.begin(), fed_.end(), history.begin(), history.end()).first;
  const auto keep = std::min<int64_t>(same - fed_.begin(), static_cast<int64_t>(history.size()) - 1);
  if (kv_.length() > keep) kv_.trim(kv_.length() - keep);
  fed_.resize(static_cast<size_t>(kv_.length()));
  while (fed_.size() + 1 < history.size()) {
    const auto chunk = history.subspan(fed_.size(), std::min(kPrefillStep, history.size() - 1 - fed_.size()));
    const nn::Span span{&kv_, chunk, nn::Rows::none};
    draft_->executor().forward(std::span(&span, 1), logits_);
    fed_.insert(fed_.end(), chunk.begin(), chunk.end());
  }
}

std::vector<int32_t> DraftModel::propose(std::span<const int32_t> history, int64_t max,
                                         std::span<const std::shared_ptr<LogitsProcessor>> processors) {
  const int64_t context = draft_->info().max_context;
  if (context > 0) max = std::min(max, context - static_cast<int64_t>(history.size()));
  if (max <= 0 || std::ranges::any_of(history, [&](int32_t id) { return id >= draft_->info().vocab_size; })) return {};
  catch_up(history);
  const auto chain = clones(processors);
  std::vector<int32_t> all(history.begin(), history.end());
  while (static_cast<int64_t>(all.size() - history.size()) < max) {
    const nn::Span span{&kv_, std::span(all).last(1), nn::Rows::last};
    draft_->executor().forward(std::span(&span, 1), logits_);
    fed_.push_back(all.back());
    const auto logits = std::span(logits_).first(static_cast<size_t>(vocab_));
    try {
      for (const auto& processor : chain) processor->process(all, logits);
      all.push_back(sampler_.sample(logits, static_cast<int64_t>(all.size())).token);
    } catch (const Error&) {  // what the draft makes of it is no concern of the request
      break;
    }
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(history.size()), all.end()};
}

}  // namespace mlxlm::engine
