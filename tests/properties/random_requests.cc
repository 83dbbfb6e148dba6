#include "properties/random_requests.h"

#include "base/format.h"
#include "base/philox.h"

namespace mlxlm::test {
namespace {

// A stream of random numbers for one index.
class Dice {
 public:
  explicit Dice(uint64_t index) : seed_(index * 2 + 1) {}
  double uniform() { return uniform_draw(seed_, counter_++, DrawPurpose::user, 0); }
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }
  bool chance(double p) { return uniform() < p; }

 private:
  uint64_t seed_;
  int64_t counter_ = 0;
};

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = 17;
  for (const int32_t token : tokens) hash = hash * 1000003 + static_cast<uint64_t>(token) + 1;
  return hash;
}

/// Favours a token that depends on how often it was called and on the last token.
class Stateful : public LogitsProcessor {
 public:
  explicit Stateful(Calls& calls) : calls_(calls) {}
  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    calls_.emplace_back(tokens.size(), hash_of(tokens));
    const size_t favoured = (calls_.size() * 37 + static_cast<size_t>(tokens.back())) % logits.size();
    logits[favoured] += 3.0f;
  }
  std::string name() const override { return "stateful"; }

 private:
  Calls& calls_;
};

// Text with repetitions, so that looking up n-grams finds something.
std::vector<int32_t> random_prompt(Dice& dice) {
  std::vector<int32_t> ids;
  const int64_t length = dice.chance(0.2) ? 1 + dice.below(200) : 1 + dice.below(60);
  while (static_cast<int64_t>(ids.size()) < length) {
    const auto size = static_cast<int64_t>(ids.size());
    if (size > 8 && dice.chance(0.3)) {
      const int64_t from = dice.below(size - 4);
      for (int64_t i = from; i < from + 4; ++i) ids.push_back(ids[static_cast<size_t>(i)]);
    } else {
      ids.push_back(static_cast<int32_t>(32 + dice.below(90)));
    }
  }
  return ids;
}

SamplerOptions random_sampler(Dice& dice) {
  SamplerOptions o;
  if (dice.chance(0.35)) return o;
  o.temp = dice.chance(0.5) ? 0.7f : 1.3f;
  if (dice.chance(0.4)) o.top_p = static_cast<float>(0.3 + 0.7 * dice.uniform());
  if (dice.chance(0.3)) o.min_p = static_cast<float>(0.2 * dice.uniform());
  if (dice.chance(0.3)) o.top_k = static_cast<int>(1 + dice.below(60));
  if (dice.chance(0.2)) o.xtc_probability = 0.5f;
  return o;
}

PromptCacheOptions random_cache(Dice& dice) {
  PromptCacheOptions o;
  if (dice.chance(0.25)) {
    o.max_kv_size = 8 + dice.below(80);
    o.keep = dice.chance(0.5) ? 4 : 0;
  }
  if (dice.chance(0.25)) {
    o.kv_bits = dice.chance(0.5) ? 8 : 4;
    o.kv_group_size = 32;
    o.quantized_kv_start = dice.chance(0.5) ? 0 : dice.below(90);
  }
  return o;
}

}  // namespace

RandomRequest random_request(uint64_t index) {
  Dice dice(index);
  RandomRequest r;
  r.index = index;
  r.prompt = random_prompt(dice);
  r.options.max_tokens = static_cast<int>(1 + dice.below(40));
  r.options.sampler = random_sampler(dice);
  r.options.seed = index * 77 + 5;
  r.options.cache = random_cache(dice);
  if (dice.chance(0.3)) r.options.stop = {std::string(1, static_cast<char>('a' + dice.below(26))), "\x7f\x7f"};
  if (dice.chance(0.2)) r.options.extra_eos_token_ids = {static_cast<int32_t>(dice.below(256))};
  if (dice.chance(0.3)) r.penalties.repetition_penalty = 1.3f;
  if (dice.chance(0.2)) r.penalties.presence_penalty = 0.5f;
  if (dice.chance(0.2)) r.penalties.frequency_penalty = 0.3f;
  if (dice.chance(0.2)) r.penalties.logit_bias = {{static_cast<int32_t>(dice.below(256)), 2.0f}};
  if (dice.chance(0.3)) r.penalties.repetition_context_size = static_cast<int>(dice.below(50));
  r.stateful = dice.chance(0.3);
  r.min_length = dice.chance(0.2);
  r.own_sampler = dice.chance(0.1);
  if (dice.chance(0.25))
    r.regex = dice.chance(0.5) ? "(yes|no|maybe), (because|although) [a-z ]{4,30}\\." : "[0-9a-f]{8}-ok";
  if (!r.regex.empty()) r.options.extra_eos_token_ids.clear();  // they may be letters that the grammar needs
  return r;
}

GenerateOptions options_for(const RandomRequest& request, const Tokenizer& tokenizer, Calls& calls) {
  GenerateOptions options = request.options;
  options.reuse_prefix = false;
  options.logits_processors = make_logits_processors(request.penalties);
  if (request.min_length) options.logits_processors.push_back(min_length(5));
  if (request.stateful) options.logits_processors.push_back(std::make_shared<Stateful>(calls));
  if (!request.regex.empty()) {
    options.logits_processors.push_back(constrain(tokenizer, {.kind = Grammar::Kind::regex, .source = request.regex}));
  }
  if (request.own_sampler) {
    options.sampler_function = [](std::span<const float> logprobs, const SamplingContext& context) {
      double best = -1e30;
      int32_t choice = 0;
      for (size_t i = 0; i < logprobs.size(); ++i) {
        const double score = static_cast<double>(logprobs[i]) + context.gumbel(static_cast<int32_t>(i));
        if (score > best) {
          best = score;
          choice = static_cast<int32_t>(i);
        }
      }
      return choice;
    };
  }
  return options;
}

std::string RandomRequest::describe() const {
  const SamplerOptions& s = options.sampler;
  const PromptCacheOptions& c = options.cache;
  return format_text(
      "request {}: {} prompt tokens, max_tokens {}, temp {} top_p {} min_p {} top_k {} xtc {}, max_kv_size {} keep {}, "
      "kv_bits {} start {}, penalties {} {} {}, stateful {}, min_length {}, own sampler {}, regex '{}'",
      index, prompt.size(), options.max_tokens, s.temp, s.top_p, s.min_p, s.top_k, s.xtc_probability, c.max_kv_size,
      c.keep, c.kv_bits, c.quantized_kv_start, penalties.repetition_penalty, penalties.presence_penalty,
      penalties.frequency_penalty, stateful, min_length, own_sampler, regex);
}

void add(Outcome& outcome, const GenerationResponse& response) {
  outcome.tokens.push_back(response.token);
  outcome.logprobs.push_back(response.logprob);
  outcome.text += response.text;
  outcome.finish_reason = response.finish_reason.value_or("");
}

}  // namespace mlxlm::test
