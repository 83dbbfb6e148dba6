// Choosing tokens: samplers and logits processors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mlxlm/tokenizer.h"

namespace mlxlm {

/// Filters work on the untempered log-probabilities in the order top_p, min_p, XTC, top_k, without renormalising; then
/// argmax(logprob / temp + Gumbel(seed, position, id)), which is an exact draw from the tempered distribution.
struct SamplerOptions {
  float temp = 0.0f;             ///< 0: greedy, and nothing below applies
  float top_p = 0.0f;            ///< (0, 1): keep the smallest set of most likely tokens with this mass, and those
                                 ///< as likely as its last; 0 and 1: off
  float min_p = 0.0f;            ///< drop tokens less likely than min_p times the most likely; 0: off
  int min_tokens_to_keep = 1;    ///< min_p leaves at least this many
  int top_k = 0;                 ///< keep the k most likely, lower ids first among equals; 0: off
  float xtc_probability = 0.0f;  ///< chance, at each position, of removing all but the least likely of the tokens above
                                 ///< xtc_threshold; 0: off
  float xtc_threshold = 0.1f;    ///< a probability in (0, 0.5]
};

/// The memory of a row of logits or log-probabilities. Who keeps a copy of this handle keeps the memory: the engine
/// uses other memory from the next step on.
using RowMemory = std::shared_ptr<std::vector<float>>;

/// The randomness of one position of one request: pure functions of (seed, position), so a sampler that draws from it
/// is reproducible in batches and under speculation.
struct SamplingContext {
  uint64_t seed = 0;
  int64_t position = 0;  ///< absolute position the chosen token will take in its sequence
  RowMemory row{};       ///< holds the sampler's log-probabilities, [vocab], which it may change; null: it may not

  /// Standard Gumbel noise of one token: argmax(logprob / temp + gumbel(id)) is an exact draw.
  double gumbel(int32_t id) const;
  /// Uniform in (0, 1); index: any number, for several draws at one position.
  double uniform(uint32_t index = 0) const;
};

/// A sampler of the caller's own: log-probabilities [vocab] (after all processors) to the id chosen. Called once for
/// each emitted token, in order.
using SamplerFunction = std::function<int32_t(std::span<const float> logprobs, const SamplingContext& context)>;

/// The built-in sampler as a function: it chooses what the built-in sampler chooses. Throws Error(invalid_value) for
/// options out of range; what depends on the vocabulary (top_k, xtc_special_tokens) is checked when it is called. A
/// copy serves one request at a time.
SamplerFunction make_sampler(const SamplerOptions& options, const std::vector<int32_t>& xtc_special_tokens = {});

/// The filters alone: the log-probabilities [vocab] of the tokens that they drop become −inf. `temp` does not matter.
/// context: where xtc_probability is between 0 and 1, its (seed, position) decide. Throws Error(invalid_value) for
/// options out of range and for log-probabilities that are NaN, +inf, or all −inf.
void filter_logprobs(std::span<float> logprobs, const SamplerOptions& options,
                     const std::vector<int32_t>& xtc_special_tokens = {}, const SamplingContext& context = {});

/// Changes logits before they become log-probabilities. One object serves one request at a time; it may keep state: it
/// is called once for each emitted token, in order, on the true history, whatever speculation and batching do.
class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;

  /// What a request knows when it starts.
  struct Start {
    std::span<const int32_t> prompt;  ///< cached tokens and the new prompt
    int64_t vocab_size = 0;
    std::span<const int32_t> eos_token_ids;  ///< every id that ends the request, sorted
  };
  /// Called once before the first process(). State of an earlier request must be dropped.
  virtual void start(const Start& start) { static_cast<void>(start); }

  /// tokens: the prompt (cached tokens included) and what was generated, each once. logits [vocab], changed in place;
  /// −inf bans a token. Throwing fails this request alone.
  virtual void process(std::span<const int32_t> tokens, std::span<float> logits) = 0;

  /// What the engine calls: process(), for processors that keep the memory in which the logits lie.
  virtual void process_row(std::span<const int32_t> tokens, std::span<float> logits, const RowMemory& memory) {
    static_cast<void>(memory);
    process(tokens, logits);
  }

  /// A copy with the same state, for trying a draft; null: it has none to give, and drafts are made without it.
  virtual std::unique_ptr<LogitsProcessor> clone() const { return nullptr; }

  /// The id after `tokens` where exactly one is admitted, else none. It must be what process() would leave.
  virtual std::optional<int32_t> forced_token(std::span<const int32_t> tokens) {
    static_cast<void>(tokens);
    return std::nullopt;
  }

  /// For messages.
  virtual std::string name() const { return "a logits processor"; }
};

using LogitsProcessorFunction = std::function<void(std::span<const int32_t> tokens, std::span<float> logits)>;
/// A function as a processor.
std::shared_ptr<LogitsProcessor> make_logits_processor(LogitsProcessorFunction function,
                                                       std::string name = "a logits processor");

/// The reference's four, applied in this order; those at their default are left out.
struct LogitsProcessorOptions {
  std::vector<std::pair<int32_t, float>> logit_bias{};  ///< id (each once), finite value added to its logit
  float repetition_penalty = 0.0f;  ///< seen tokens: logit · p where negative, logit / p else; 0 and 1: off
  int repetition_context_size = 20;
  float presence_penalty = 0.0f;  ///< subtracted once from every token seen
  int presence_context_size = 20;
  float frequency_penalty = 0.0f;  ///< subtracted for every time a token was seen
  int frequency_context_size = 20;
  /// false: presence and frequency count generated tokens only, as OpenAI's interface does.
  bool penalize_prompt = true;

  // Context sizes: how many of the last tokens (prompt and generated) count; 0: all.
};
/// Throws Error(invalid_value) naming the option out of range.
std::vector<std::shared_ptr<LogitsProcessor>> make_logits_processors(const LogitsProcessorOptions& options);

/// The ids never appear.
std::shared_ptr<LogitsProcessor> ban_token_ids(std::vector<int32_t> ids);
/// None of the texts appears in what is generated, however it is cut into tokens. An id that ends the request is no
/// text. Throws Error(unsupported) where a token's text depends on its neighbours (WordPiece and its like).
std::shared_ptr<LogitsProcessor> forbid_strings(const Tokenizer& tokenizer, std::vector<std::string> texts);
/// What is generated begins with this text, in the tokens that the tokenizer gives it. Throws Error(invalid_value)
/// where those do not read as the text.
std::shared_ptr<LogitsProcessor> force_prefix(const Tokenizer& tokenizer, const std::string& text);
/// No EOS before `tokens` have been generated.
std::shared_ptr<LogitsProcessor> min_length(int64_t tokens);
/// After `tokens` generated tokens of thinking, in all sections together, the end marker is forced. Throws
/// Error(invalid_value) for a tokenizer whose vocabulary has no think markers.
std::shared_ptr<LogitsProcessor> thinking_budget(const Tokenizer& tokenizer, int64_t tokens);

/// A grammar that the generated text (not the prompt) must follow; EOS is admitted where the text may end. Special
/// tokens are no text: only a Lark grammar admits them, by name. A tokenizer that cuts text as it stands (byte-level
/// BPE) also chooses the tokens wherever one text is left, so these can be drafted (LogitsProcessor::forced_token).
struct Grammar {
  enum class Kind {
    json_schema,  ///< keywords that cannot be enforced are errors. At most 64 blanks in a row between the parts, unless
                  ///< the schema's member "x-guidance" says otherwise (options of the crate llguidance)
    json_object,  ///< any JSON object
    regex,        ///< matches the whole text; Rust's syntax, without lookaround and \b
    lark,         ///< in the dialect of llguidance, without stop= and temperature=
    choice,       ///< one of the texts
  };
  Kind kind = Kind::json_object;
  std::string source{};                ///< the schema, expression or Lark grammar; unused for the other two
  std::vector<std::string> choices{};  ///< of Kind::choice
};
/// Compiles the grammar. Throws Error(invalid_value) with the place in the grammar that is wrong, also for sources over
/// 1 MiB (expressions and Lark: 64 KiB) and grammars that grow too large; Error(unsupported) for a tokenizer whose
/// tokens are not bytes (WordPiece). The processor fails a request whose tokens the grammar does not admit, or whose
/// mask takes too much work.
std::shared_ptr<LogitsProcessor> constrain(const Tokenizer& tokenizer, const Grammar& grammar);

}  // namespace mlxlm
