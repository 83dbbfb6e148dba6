#include "engine/scheduler.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace mlxlm::engine {
namespace {

// Prompt tokens fed in a step that also decodes: a running request waits for little more than a decode step.
constexpr int64_t kPromptTokensBesideDecoding = 128;
// Prompt tokens fed in a step that decodes nothing. Longer passes are no faster.
constexpr int64_t kPromptTokens = 2048;
// More ids to feed than this make a sequence wait its turn as a prompt does.
constexpr int64_t kFewTokens = kMaxDraftTokens;

// Whether its next pass is a decode step: what gave up its memory, too, has a prompt to feed.
bool decodes(const Sequence& sequence) { return !sequence.in_prompt() && sequence.pending() <= kFewTokens; }

}  // namespace

Scheduler::Scheduler(std::shared_ptr<ModelImpl> model, const SchedulerOptions& options)
    : model_(std::move(model)), executor_(model_->executor()), options_(options) {}

int64_t Scheduler::add(SequenceRequest request) {
  const PromptCache::State& cache = *request.cache;
  if (cache.pending().empty()) throw_invalid("the prompt has no tokens; give some text or ids");
  const int64_t context = model_->info().max_context;
  const int64_t size = cache.size();
  const int64_t most = request.max_tokens >= 0 ? size + request.max_tokens : std::max(size, context);
  const int64_t pool = executor_.kv_pool().byte_budget();
  for (const int64_t budget : {options_.kv_bytes, pool}) {
    const int64_t needed = budget > 0 ? executor_.kv_bytes(most, cache.kv.options()) : 0;
    if (needed > budget) {
      throw_invalid(
          "the request may need {} bytes of keys and values for {} tokens, and the budget is {}; shorten the prompt, "
          "lower max_tokens, or raise the budget",
          needed, most, budget);
    }
  }
  waiting_.push_back(std::make_unique<Sequence>(next_id_, std::move(request), *model_));
  return next_id_++;
}

bool Scheduler::remove(int64_t id) {
  const auto has_id = [&](const auto& s) { return s->id() == id; };
  return std::erase_if(running_, has_id) + std::erase_if(waiting_, has_id) > 0;
}

Sequence* Scheduler::find(int64_t id) {
  for (const auto& s : running_) {
    if (s->id() == id) return s.get();
  }
  for (const auto& s : waiting_) {
    if (s->id() == id) return s.get();
  }
  return nullptr;
}

const std::vector<Emission>& Scheduler::step(const CancelCheck& cancel) {
  drop_finished();
  admit();
  plan();
  make_room();
  run_pass(cancel);
  emit();
  return emissions_;
}

void Scheduler::drop_finished() {
  emissions_.clear();
  for (const int64_t id : finished_) remove(id);
  finished_.clear();
}

void Scheduler::admit() {
  while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < options_.max_running) {
    // What gave up its memory comes back when what it holds and the next block fit beside the others.
    if (options_.kv_bytes > 0 && !running_.empty()) {
      const PromptCache::State& cache = waiting_.front()->cache();
      if (held_bytes() + executor_.kv_bytes(cache.size() + kKvBlockTokens, cache.kv.options()) > options_.kv_bytes) {
        return;
      }
    }
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::plan() {
  planned_.clear();
  blocks_being_made_.clear();
  bool decoding = false;
  for (const auto& s : running_) {
    if (s->ready()) {
      decoding = true;
    } else if (decodes(*s)) {
      decoding = true;
      plan_one(*s, kFewTokens);
    }
  }
  plan_prompts(decoding ? kPromptTokensBesideDecoding : kPromptTokens);
}

void Scheduler::plan_prompts(int64_t budget) {
  int64_t prompts = 0;
  for (const auto& s : running_) {
    if (s->ready() || decodes(*s)) continue;
    if (prompts == options_.max_prompts || budget <= 0) return;
    if (!plan_one(*s, budget)) continue;
    budget -= static_cast<int64_t>(planned_.back().span.tokens.size());
    ++prompts;
  }
}

// False: another sequence of this pass computes the same block, which the next step will find.
bool Scheduler::plan_one(Sequence& sequence, int64_t budget) {
  const auto key = sequence.find_prefix(model_->prefix_cache());
  if (key) {
    if (std::ranges::find(blocks_being_made_, *key) != blocks_being_made_.end()) return false;
    blocks_being_made_.push_back(*key);
  }
  planned_.push_back({&sequence, sequence.plan(budget)});
  return true;
}

int64_t Scheduler::held_bytes() const {
  int64_t bytes = 0;
  for (const auto& s : running_) bytes += s->cache().kv.bytes();
  if (bytes <= options_.kv_bytes) return bytes;
  // Blocks that several sequences share count once.
  std::set<std::pair<size_t, nn::KvPool::BlockId>> seen;
  bytes = 0;
  for (const auto& s : running_) {
    const nn::KvSequence& kv = s->cache().kv;
    for (size_t g = 0; g < kv.pool().groups().size(); ++g) {
      for (const nn::KvPool::BlockId id : kv.blocks(g)) {
        if (id != nn::KvSequence::kNone && seen.emplace(g, id).second) bytes += nn::KvPool::block_bytes(id);
      }
    }
  }
  return bytes;
}

bool Scheduler::fits() const {
  int64_t more = 0;
  for (const Planned& p : planned_) {
    more += p.sequence->cache().kv.bytes_to_prepare(static_cast<int64_t>(p.span.tokens.size()));
  }
  if (more == 0) return true;
  const nn::KvPool& pool = executor_.kv_pool();
  if (pool.byte_budget() > 0 && pool.bytes_in_use() + more > pool.byte_budget()) {
    model_->prefix_cache().release(pool.bytes_in_use() + more - pool.byte_budget());
    if (pool.bytes_in_use() + more > pool.byte_budget()) return false;
  }
  return options_.kv_bytes == 0 || held_bytes() + more <= options_.kv_bytes;
}

// The newest give up their memory until the others have enough.
void Scheduler::make_room() {
  while (!fits()) {
    const auto victim =
        std::find_if(running_.rbegin(), running_.rend(), [](const auto& s) { return s->recomputable(); });
    if (running_.size() == 1 || victim == running_.rend()) {
      throw_error(ErrorKind::io,
                  "the budget for keys and values is spent, and what else uses the model holds it; try again later or "
                  "raise the budget");
    }
    preempt(victim->get());
  }
}

void Scheduler::preempt(Sequence* sequence) {
  if (sequence->cache().kv.length() > 0) ++preemptions_;
  sequence->give_up_memory();
  std::erase_if(planned_, [&](const Planned& p) { return p.sequence == sequence; });
  const auto it = std::ranges::find_if(running_, [&](const auto& s) { return s.get() == sequence; });
  waiting_.push_front(std::move(*it));
  running_.erase(it);
}

void Scheduler::run_pass(const CancelCheck& cancel) {
  prompt_tokens_fed_ = 0;
  if (planned_.empty()) return;
  spans_.clear();
  for (const Planned& p : planned_) spans_.push_back(p.span);
  executor_.forward(spans_, renewed(logits_), cancel);
  const auto vocab = static_cast<size_t>(executor_.spec().vocab_size);
  size_t row = 0;
  for (const Planned& p : planned_) {
    const size_t n = p.span.rows == nn::Rows::none ? 0 : p.span.rows == nn::Rows::last ? 1 : p.span.tokens.size();
    if (p.sequence->in_prompt()) prompt_tokens_fed_ += static_cast<int64_t>(p.span.tokens.size());
    p.sequence->finish_pass(std::span(*logits_).subspan(row * vocab, n * vocab), model_->prefix_cache());
    row += n;
  }
}

void Scheduler::emit() {
  for (const auto& s : running_) {
    if (!s->ready()) continue;
    emissions_.push_back(s->emit(logits_));
    if (emissions_.back().finish != Finish::none || emissions_.back().error) finished_.push_back(s->id());
  }
}

}  // namespace mlxlm::engine
