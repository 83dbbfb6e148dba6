// Text generation: generate and stream_generate.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mlxlm/model.h"
#include "mlxlm/prompt_cache.h"
#include "mlxlm/sampling.h"

namespace mlxlm {

/// Guessing tokens ahead, which makes decoding faster where guesses are good and never changes what is generated. The
/// number guessed adapts to how many were right.
struct SpeculationOptions {
  std::optional<Model> draft_model{};  ///< a smaller model with the same vocabulary
  bool prompt_lookup = false;          ///< guess that what followed the last few tokens earlier follows again
  int num_draft_tokens = 0;  ///< most tokens to guess at once, at most 48; 0: 4 with a draft model, 10 with lookup

  bool enabled() const { return draft_model.has_value() || prompt_lookup; }
};

struct GenerateOptions {
  int max_tokens = 256;  ///< −1: until EOS or the context ends; 0: one empty response
  SamplerOptions sampler{};
  std::vector<int32_t> xtc_special_tokens{};  ///< ids that XTC never removes, nor the newline's tokens and EOS ids
  SamplerFunction sampler_function{};         ///< chooses instead of `sampler`; may be empty
  std::vector<std::shared_ptr<LogitsProcessor>> logits_processors{};  ///< in order, before the sampler
  std::optional<uint64_t> seed{};                                     ///< none: one is drawn and reported
  std::vector<std::string> stop{};                                    ///< end generation; not part of the text
  std::optional<std::vector<int32_t>> eos_token_ids{};                ///< end generation; none: the model's own do
  std::vector<int32_t> extra_eos_token_ids{};                         ///< end generation beside those
  int prefill_step_size = 2048;         ///< most prompt tokens in one forward pass; never changes a result
  int top_logprobs = 0;                 ///< report this many most likely tokens at each step
  bool full_logprobs = false;           ///< report the whole distribution at each step
  PromptCache* prompt_cache = nullptr;  ///< continue from here; the prompt is the new part only. Not owned
  PromptCacheOptions cache{};           ///< how keys and values are held; only without prompt_cache
  bool reuse_prefix = true;             ///< begin from the longest known prefix; only with the default `cache`
  SpeculationOptions speculation{};
  std::function<void(int64_t done, int64_t total)> prompt_progress{};  ///< called (0, T), after each chunk, and (T, T)
  std::stop_token cancel{};  ///< request_stop() from any thread ends generation with "cancelled"
  /// Asked between the layers of a forward pass, on the thread that runs it; true ends generation with "cancelled".
  /// Unused by BatchGenerator, whose next() takes one for all requests.
  std::function<bool()> interrupted{};
  std::optional<std::chrono::steady_clock::time_point> deadline{};  ///< generation ends with "deadline" when it passes
};

/// One step of stream_generate; the last has a finish_reason.
struct GenerationResponse {
  std::string text;                                     ///< new text, "" inside a character or a possible stop string
  int32_t token = -1;                                   ///< the sampled id; −1 when max_tokens is 0
  float logprob = 0.0f;                                 ///< its log-probability, after all processors
  std::vector<float> logprobs;                          ///< [vocab] with full_logprobs, else empty
  std::vector<std::pair<int32_t, float>> top_logprobs;  ///< most likely first, banned tokens left out
  bool from_draft = false;                              ///< the token was guessed ahead
  int64_t prompt_tokens = 0;                            ///< ids passed in, those of prompt_cache excluded
  int64_t cached_tokens = 0;      ///< of the whole history, how many were already in the cache or a known prefix
  double prompt_tps = 0;          ///< prompt_tokens / time to the first token
  int64_t generation_tokens = 0;  ///< tokens sampled so far, an ending EOS included
  double generation_tps = 0;      ///< generation_tokens / time since the first token
  double peak_memory = 0;         ///< peak resident memory of this process in GB (1e9 bytes)
  int64_t draft_tokens = 0;       ///< guesses put to the model so far
  int64_t accepted_tokens = 0;    ///< of those, how many were right
  std::optional<std::string> finish_reason;  ///< "stop", "length", "cancelled" or "deadline" in the last response
  uint64_t seed = 0;                         ///< the seed in use
};

/// A prompt: text (special tokens are added unless it already starts with BOS) or token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;
class Prompt : public PromptInput {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a prompt is given as what it is
  Prompt(const char* text) : PromptInput(std::string(text)) {}
  Prompt(std::string text) : PromptInput(std::move(text)) {}
  Prompt(std::string_view text) : PromptInput(std::string(text)) {}
  Prompt(std::vector<int32_t> ids) : PromptInput(std::move(ids)) {}
  // NOLINTEND(google-explicit-constructor)
};

/// A single-pass range of responses. Work happens as it is iterated; destroying it early stops the generation.
class TokenStream {
 public:
  class iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using iterator_category = std::input_iterator_tag;
    using value_type = GenerationResponse;
    using difference_type = std::ptrdiff_t;
    using reference = const GenerationResponse&;
    using pointer = const GenerationResponse*;

    iterator() = default;
    explicit iterator(TokenStream* stream) : stream_(stream) {}
    reference operator*() const;
    pointer operator->() const { return &**this; }
    iterator& operator++();
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& it, std::default_sentinel_t) { return it.at_end(); }

   private:
    bool at_end() const;
    TokenStream* stream_ = nullptr;
  };

  struct State;
  explicit TokenStream(std::unique_ptr<State> state);
  ~TokenStream();
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;

  /// The next response, or none at the end: for callers that keep responses. Do not mix with begin().
  std::optional<GenerationResponse> next();

  iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  std::unique_ptr<State> state_;
};

/// Throws Error at the call for wrong options, an empty prompt, or ids outside the vocabulary.
TokenStream stream_generate(const Model& model, const Tokenizer& tokenizer, const Prompt& prompt,
                            const GenerateOptions& options = {});

/// The whole text at once.
std::string generate(const Model& model, const Tokenizer& tokenizer, const Prompt& prompt,
                     const GenerateOptions& options = {});

}  // namespace mlxlm
