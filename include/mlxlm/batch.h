// Many requests at once: BatchGenerator and batch_generate.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxlm/error.h"
#include "mlxlm/generate.h"

namespace mlxlm {

struct BatchOptions {
  int completion_batch_size = 32;  ///< most requests that run at once; the others wait in order of arrival
  int prefill_batch_size = 8;      ///< most prompts that are fed at once
  int64_t kv_bytes = 0;            ///< budget for the keys and values of all requests of this generator; 0: none of its
                                   ///< own. A request that can never fit is refused; one that must wait, waits
  bool keep_caches = false;        ///< keep the caches of finished requests for extract_cache
};

/// What one step has done for one request.
struct BatchResponse {
  int64_t uid = 0;
  GenerationResponse response;  ///< finish_reason "error" in the last response of a request that failed
  std::optional<Error> error;
};

struct BatchPromptProgress {
  int64_t uid = 0;
  int64_t done = 0;   ///< prompt tokens fed
  int64_t total = 0;  ///< prompt tokens to feed
};

struct BatchStep {
  std::vector<BatchPromptProgress> prompts;  ///< requests whose prompts moved on
  std::vector<BatchResponse> responses;      ///< at most one for each request, in order of insertion
};

struct BatchStats {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  ///< taken from a known prefix or a given cache instead of being computed
  double prompt_time = 0;     ///< seconds of steps that fed prompts
  double prompt_tps = 0;
  int64_t generation_tokens = 0;
  double generation_time = 0;  ///< seconds of steps that only decoded
  double generation_tps = 0;
  double peak_memory = 0;  ///< peak resident memory of this process in GB (1e9 bytes)
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;
  int64_t preemptions = 0;  ///< times a request gave up its keys and values for others and computed them again
};

/// Continuous batching: requests join and leave at any step, each with its own sampler, processors, seed and stop
/// rules, and get the tokens they would get alone. Belongs to one thread at a time.
class BatchGenerator {
 public:
  /// With a tokenizer, responses carry text and stop strings work; without, prompts must be ids.
  explicit BatchGenerator(const Model& model, const BatchOptions& options = {});
  BatchGenerator(const Model& model, const Tokenizer& tokenizer, const BatchOptions& options = {});
  ~BatchGenerator();
  BatchGenerator(BatchGenerator&&) noexcept;
  BatchGenerator& operator=(BatchGenerator&&) noexcept;

  /// Adds a request and returns its uid. options.prompt_cache is continued on a copy. Throws Error as stream_generate
  /// does, and where the request can never fit the KV budget.
  int64_t insert(const Prompt& prompt, const GenerateOptions& options = {});
  /// One token for every running request, and the next part of the prompts of those that start. Empty when idle.
  /// interrupted: as GenerateOptions::interrupted; where it returns true, Error(cancelled) is thrown and nothing is
  /// lost.
  BatchStep next(const std::function<bool()>& interrupted = {});
  /// Whether nothing runs or waits.
  bool idle() const;
  /// Ends a request without a response. False: there is none with this uid.
  bool remove(int64_t uid);
  /// A copy of the request's cache: of a running one at any time, of a finished one with keep_caches (once).
  PromptCache extract_cache(int64_t uid);
  BatchStats stats() const;
  /// Removes every request.
  void close();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// Results in the order of the prompts.
struct BatchResult {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> token_ids;  ///< an ending EOS excluded
  std::vector<std::vector<float>> logprobs;     ///< of the token ids
  std::vector<std::string> finish_reasons;
  std::vector<std::optional<Error>> errors;
  std::vector<PromptCache> caches;  ///< with BatchOptions::keep_caches; of requests that failed an empty one
  BatchStats stats;
};

/// Runs all prompts to their ends. options: one for all, or one for each prompt. With one for all, processors that
/// have a clone() are copied for each prompt; others are shared, and must then keep no state.
BatchResult batch_generate(const Model& model, const Tokenizer& tokenizer, const std::vector<Prompt>& prompts,
                           const std::vector<GenerateOptions>& options = {{}}, const BatchOptions& batch = {});

}  // namespace mlxlm
