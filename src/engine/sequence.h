// One request inside the engine: what is fed next, and which token follows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/draft.h"
#include "engine/prefix_cache.h"
#include "engine/prompt_cache.h"
#include "sampling/sampler.h"

namespace mlxlm::engine {

/// Memory for new values: the same, unless there is none or somebody keeps the old ones.
std::vector<float>& renewed(RowMemory& memory);

/// Why a request ended by itself.
enum class Finish : uint8_t { none, stop, length };

/// What a request brings.
struct SequenceRequest {
  PromptCache::State* cache = nullptr;  ///< where it continues; its pending ids are the prompt. Outlives the sequence
  SamplerOptions sampler{};             ///< checked with check_sampler_options
  std::vector<int32_t> xtc_special_tokens{};
  SamplerFunction sampler_function{};  ///< chooses instead of `sampler`; may be empty
  std::vector<std::shared_ptr<LogitsProcessor>> processors{};
  uint64_t seed = 0;
  int64_t max_tokens = -1;               ///< −1: until EOS or the context ends
  std::vector<int32_t> eos_token_ids{};  ///< sorted
  int64_t prefill_step_size = 2048;      ///< most tokens of it in one pass
  std::unique_ptr<DraftSource> draft{};  ///< none: no guesses
  int64_t max_draft_tokens = 0;
  bool reuse_prefix = false;                                           ///< begin from the longest known prefix
  std::function<void(int64_t done, int64_t total)> prompt_progress{};  ///< over the pending ids; may be empty
};

struct DraftCounts {
  int64_t proposed = 0;
  int64_t accepted = 0;
};

/// One token, or the failure of a request.
struct Emission {
  int64_t id = 0;  ///< of the sequence
  sampling::Choice choice{};
  bool from_draft = false;
  DraftCounts drafts{};  ///< of the sequence so far
  int64_t cached = 0;    ///< positions that did not have to be computed for its prompt
  Finish finish = Finish::none;
  /// The logits after all processors, [vocab], and log Σ exp of them; valid until the next step. Empty where a grammar
  /// left one id: its log-probability is 0 and every other's −inf.
  std::span<const float> logits{};
  int64_t vocab = 0;
  float log_normalizer = 0;
  std::exception_ptr error{};  ///< the request has failed, and nothing above counts
};

/// The processors and the sampler run once for each emitted token, in order, on the true history, and only when that
/// token is asked for: guesses are judged one by one, on logits kept from the pass that verified them.
class Sequence {
 public:
  Sequence(int64_t id, SequenceRequest request, ModelImpl& model);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  int64_t id() const { return id_; }
  PromptCache::State& cache() { return *request_.cache; }
  const PromptCache::State& cache() const { return *request_.cache; }
  const SequenceRequest& request() const { return request_; }
  int64_t generated() const { return generated_; }
  bool in_prompt() const { return in_prompt_; }  ///< no token has been asked for yet
  int64_t pending() const;                       ///< ids to feed before the next token can be sampled

  /// Whether emit() needs no pass first: logits are at hand, or only one id is admitted.
  bool ready();
  /// The next token. Needs ready(). pass_rows: the memory of the last pass's logits. `error` is set when a processor or
  /// the sampler threw.
  Emission emit(const RowMemory& pass_rows);

  /// What to feed in the next pass, at most `budget` ids of a prompt; guesses are added behind a single pending id.
  nn::Span plan(int64_t budget);
  /// Takes what is known of its ids where that is longer than what it holds. Returns the key of the block it will
  /// compute next, where others may want the same one.
  std::optional<uint64_t> find_prefix(PrefixCache& prefixes);
  /// After the pass: the logits of the rows that plan() wanted, [rows, vocab], valid until the next pass.
  void finish_pass(std::span<float> logits, PrefixCache& prefixes);
  /// Forgets keys and values that no longer belong to the history.
  void settle();
  bool recomputable() const { return cache().start == 0; }
  /// Gives up keys and values; they are computed again from the ids. Needs recomputable().
  void give_up_memory();
  int64_t cached() const { return std::max<int64_t>(0, cached_); }  ///< positions it did not have to compute
  int64_t prompt_total() const { return prompt_total_; }
  int64_t prompt_fed() const;  ///< of prompt_total()
  /// Tells prompt_progress what is new.
  void report_progress();

 private:
  Emission emit_sampled(const RowMemory& pass_rows);
  std::optional<int32_t> forced_token();
  sampling::Choice choose(std::span<float> logits, const RowMemory& memory);
  void append(Emission& emission, int32_t token);
  Finish finish_of(int32_t token) const;
  std::vector<int32_t> guesses();
  bool shares_prefixes(const PrefixCache& prefixes) const;
  void remember();
  void start_processors();

  const int64_t id_;
  SequenceRequest request_;
  ModelImpl& model_;
  const int64_t vocab_;
  sampling::Sampler sampler_;
  DraftLength draft_length_;
  DraftCounts counts_;
  int64_t generated_ = 0;
  int64_t prompt_begin_ = 0;  // positions held when it began
  int64_t prompt_total_ = 0;  // ids to feed when it began
  int64_t reported_ = 0;      // of them, how many the caller knows to be fed
  bool in_prompt_ = true;
  bool started_ = false;  // the processors know the prompt
  int64_t cached_ = -1;   // −1: nothing has been fed yet
  PrefixCache::Cursor stored_;
  std::exception_ptr error_;  // what a processor threw when asked for the only id

  std::vector<int32_t> drafts_;  // guesses of the last pass
  size_t judged_ = 0;            // how many of them the history confirms
  std::vector<int32_t> fed_;     // ids of the pass being planned
  bool wants_rows_ = false;
  std::span<float> rows_;        // [rows, vocab] logits of the last pass
  RowMemory kept_rows_;          // those of them that are needed in later steps too
  size_t row_ = 0, n_rows_ = 0;  // the next to use, and how many there are
  std::optional<int32_t> forced_;
  bool forced_known_ = false;  // forced_ has been asked for at this position
  RowMemory logprobs_;         // [vocab], for a sampler of the caller's own
};

}  // namespace mlxlm::engine
