#include "engine/prompt_cache.h"

#include <algorithm>

#include "base/error.h"

namespace mlxlm {

PromptCache::PromptCache(const Model& model) {
  auto impl = model.shared_impl();
  nn::KvSequence kv = impl->executor().new_sequence();
  state_ = std::make_unique<State>(State{std::move(impl), std::move(kv), {}, false});
}

PromptCache::~PromptCache() = default;
PromptCache::PromptCache(PromptCache&&) noexcept = default;
PromptCache& PromptCache::operator=(PromptCache&&) noexcept = default;

int64_t PromptCache::size() const { return static_cast<int64_t>(state_->tokens.size()); }

const std::vector<int32_t>& PromptCache::tokens() const { return state_->tokens; }

int64_t PromptCache::trim(int64_t n) {
  if (n < 0) throw_invalid("PromptCache::trim: expected 0 or more tokens, got {}", n);
  if (state_->in_use) throw_invalid("PromptCache::trim: a generation is using this cache; finish or destroy it first");
  const int64_t before = size();
  const int64_t wanted = before - std::min(n, before);
  const int64_t excess = state_->kv.length() - wanted;
  if (excess > 0) state_->kv.trim(excess);
  // A window that has moved on leaves nothing: then the whole history is forgotten with it.
  const bool kept = excess <= 0 || state_->kv.length() == wanted;
  state_->tokens.resize(static_cast<size_t>(kept ? wanted : 0));
  return before - size();
}

}  // namespace mlxlm
