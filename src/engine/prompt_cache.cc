#include "engine/prompt_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mlxlm {
namespace {

void check_options(const nn::ModelSpec& spec, const PromptCacheOptions& options) {
  constexpr int64_t kMost = 0x7fffffff;  // what a cache file holds
  if (options.max_kv_size < 0 || options.max_kv_size > kMost) {
    throw_invalid("max_kv_size: expected 0 (keep everything) or up to {} positions, got {}", kMost,
                  options.max_kv_size);
  }
  if (options.max_kv_size > 0 && (options.keep < 0 || options.keep >= options.max_kv_size)) {
    throw_invalid("keep: expected 0 or more positions and fewer than max_kv_size ({}), got {}", options.max_kv_size,
                  options.keep);
  }
  if (options.kv_bits == 0) return;
  if (options.kv_bits != 4 && options.kv_bits != 8) {
    throw_invalid("kv_bits: expected 0 (not quantised), 4 or 8, got {}", options.kv_bits);
  }
  if (options.kv_group_size != 32 && options.kv_group_size != 64 && options.kv_group_size != 128) {
    throw_invalid("kv_group_size: expected 32, 64 or 128, got {}", options.kv_group_size);
  }
  if (options.quantized_kv_start < 0) {
    throw_invalid("quantized_kv_start: expected a position of 0 or more, got {}", options.quantized_kv_start);
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const int64_t head_dim = spec.layers[i].attention.head_dim;
    if (head_dim % options.kv_group_size != 0) {
      throw_invalid("kv_group_size: expected a divisor of layer {}'s head_dim {}, got {}", i, head_dim,
                    options.kv_group_size);
    }
  }
}

nn::KvOptions kv_options(const PromptCacheOptions& options) {
  return {.max_size = options.max_kv_size,
          .keep = options.keep,
          .bits = options.kv_bits,
          .group_size = options.kv_group_size,
          .quantized_start = options.quantized_kv_start};
}

}  // namespace

PromptCache::PromptCache(const Model& model, const PromptCacheOptions& options) {
  auto impl = model.shared_impl();
  check_options(impl->executor().spec(), options);
  nn::KvSequence kv = impl->executor().new_sequence(kv_options(options));
  state_ =
      std::make_unique<State>(State{.model = std::move(impl), .kv = std::move(kv), .options = options, .tokens = {}});
}

PromptCache::PromptCache(std::unique_ptr<State> state) : state_(std::move(state)) {}
PromptCache::~PromptCache() = default;
PromptCache::PromptCache(PromptCache&&) noexcept = default;
PromptCache& PromptCache::operator=(PromptCache&&) noexcept = default;

int64_t PromptCache::size() const { return state_->size(); }
const std::vector<int32_t>& PromptCache::tokens() const { return state_->tokens; }
const PromptCacheOptions& PromptCache::options() const { return state_->options; }

int64_t PromptCache::bytes() const { return state_->kv.bytes(); }

PromptCache PromptCache::fork() const {
  if (state_->in_use) throw_invalid("PromptCache::fork: a generation is using this cache; finish or destroy it first");
  return PromptCache(std::make_unique<State>(state_->copy()));
}

PromptCache::State PromptCache::State::copy() const {
  State other{.model = model, .kv = kv.fork(), .options = options, .tokens = tokens, .start = start};
  if (other.kv.length() > size()) other.kv.trim(other.kv.length() - size());
  return other;
}

bool PromptCache::can_trim(int64_t n) const {
  const State& s = *state_;
  if (s.in_use || n < 0 || n > s.size()) return false;
  const int64_t wanted = s.size() - n;
  const int64_t excess = s.kv.length() - wanted;
  // With every id at hand, keys and values that cannot be trimmed are computed again.
  return s.start == 0 || wanted == 0 || excess <= 0 || s.kv.can_trim(excess);
}

int64_t PromptCache::trim(int64_t n) {
  State& s = *state_;
  if (n < 0) throw_invalid("PromptCache::trim: expected 0 or more tokens, got {}", n);
  if (s.in_use) throw_invalid("PromptCache::trim: a generation is using this cache; finish or destroy it first");
  n = std::min(n, s.size());
  if (!can_trim(n)) return 0;
  const int64_t wanted = s.size() - n;
  const int64_t excess = s.kv.length() - wanted;
  if (excess > 0) s.kv.trim(excess);  // to nothing where a window has moved on
  s.start = std::min(s.start, wanted);
  s.tokens.resize(static_cast<size_t>(wanted - s.start));
  return n;
}

}  // namespace mlxlm
