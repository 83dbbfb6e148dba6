// Text generation: generate and stream_generate.
#pragma once

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

struct GenerateOptions {
  int max_tokens = 256;  ///< −1: until EOS or the context ends; 0: one empty response
  SamplerOptions sampler{};
  std::optional<uint64_t> seed{};              ///< none: one is drawn and reported in the responses
  std::vector<std::string> stop{};             ///< strings that end generation; not part of the text
  std::vector<int32_t> extra_eos_token_ids{};  ///< end generation beside the model's own
  int prefill_step_size = 2048;                ///< prompt tokens per forward pass; never changes a result
  int top_logprobs = 0;                        ///< report this many most likely tokens at each step
  bool full_logprobs = false;                  ///< report the whole distribution at each step
  PromptCache* prompt_cache = nullptr;         ///< continue from here; the prompt is the new part only. Not owned
  std::function<void(int64_t done, int64_t total)> prompt_progress{};  ///< called (0, T), after each chunk, and (T, T)
  std::stop_token cancel{};  ///< request_stop() from any thread ends generation with "cancelled"
};

/// One step of stream_generate; the last has a finish_reason.
struct GenerationResponse {
  std::string text;                                     ///< new text, "" inside a character or a possible stop string
  int32_t token = -1;                                   ///< the sampled id; −1 when max_tokens is 0
  float logprob = 0.0f;                                 ///< its log-probability under the model
  std::vector<float> logprobs;                          ///< [vocab] with full_logprobs, else empty
  std::vector<std::pair<int32_t, float>> top_logprobs;  ///< most likely first
  bool from_draft = false;
  int64_t prompt_tokens = 0;                 ///< ids passed in, cached ones excluded
  double prompt_tps = 0;                     ///< prompt_tokens / time to the first token
  int64_t generation_tokens = 0;             ///< tokens sampled so far, an ending EOS included
  double generation_tps = 0;                 ///< generation_tokens / time since the first token
  double peak_memory = 0;                    ///< peak resident memory of this process in GB (1e9 bytes)
  std::optional<std::string> finish_reason;  ///< "stop", "length" or "cancelled" in the last response
  uint64_t seed = 0;                         ///< the seed in use
};

/// A prompt: text (special tokens are added unless it already starts with BOS) or token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;
class Prompt : public PromptInput {
 public:
  Prompt(const char* text) : PromptInput(std::string(text)) {}
  Prompt(std::string text) : PromptInput(std::move(text)) {}
  Prompt(std::string_view text) : PromptInput(std::string(text)) {}
  Prompt(std::vector<int32_t> ids) : PromptInput(std::move(ids)) {}
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
