#include "cli/settings.h"

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "cli/options.h"

namespace mlxlm::cli {
namespace {

constexpr int kKvGroupSize = 64;         // as mlx_lm.generate
constexpr int kQuantizedKvStart = 5000;  // as mlx_lm.generate
constexpr int kDraftModelTokens = 3;     // as mlx_lm.generate
constexpr int kEngineDraftTokens = 0;    // the engine's own choice for prompt lookup

/// The forms of an answer that are asked for, by option.
std::vector<const char*> forms(const GenerationSettings& s) {
  std::vector<const char*> names;
  if (s.json_schema) names.push_back("--json-schema");
  if (s.json_object) names.push_back("--json-object");
  if (s.regex) names.push_back("--regex");
  if (s.grammar) names.push_back("--grammar");
  if (!s.choice.empty()) names.push_back("--choice");
  return names;
}

std::optional<Grammar> grammar_of(const GenerationSettings& s) {
  if (s.json_schema) return Grammar{Grammar::Kind::json_schema, *s.json_schema, {}};
  if (s.json_object) return Grammar{Grammar::Kind::json_object, {}, {}};
  if (s.regex) return Grammar{Grammar::Kind::regex, *s.regex, {}};
  if (s.grammar) return Grammar{Grammar::Kind::lark, *s.grammar, {}};
  if (!s.choice.empty()) return Grammar{Grammar::Kind::choice, {}, s.choice};
  return std::nullopt;
}

std::vector<std::shared_ptr<LogitsProcessor>> processors(const GenerationSettings& s, const Tokenizer& tokenizer) {
  auto list = make_logits_processors(s);
  if (!s.ban_token_ids.empty()) list.push_back(ban_token_ids(s.ban_token_ids));
  if (s.min_tokens > 0) list.push_back(min_length(s.min_tokens));
  if (const std::optional<Grammar> grammar = grammar_of(s)) list.push_back(constrain(tokenizer, *grammar));
  if (s.thinking_budget) list.push_back(thinking_budget(tokenizer, *s.thinking_budget));
  return list;
}

}  // namespace

std::string settings_conflict(const GenerationSettings& s, NameStyle style, bool has_draft_model, bool cache_given) {
  const auto name = [style](const char* option) {
    return style == NameStyle::option ? std::string(option) : setting_key(option);
  };
  if (const auto given = forms(s); given.size() > 1) {
    return format_text("{} and {}: an answer has one form; choose one of them", name(given[0]), name(given[1]));
  }
  if (!s.kv_bits && !cache_given) {
    for (const auto& [is_given, option] : {std::pair(s.kv_group_size.has_value(), "--kv-group-size"),
                                           std::pair(s.quantized_kv_start.has_value(), "--quantized-kv-start")}) {
      if (is_given) return format_text("{} needs {}", name(option), name("--kv-bits"));
    }
  }
  if (has_draft_model && s.prompt_lookup) {
    return format_text("--draft-model and {} both guess tokens; choose one of them", name("--prompt-lookup"));
  }
  if (s.num_draft_tokens && !has_draft_model && !s.prompt_lookup) {
    return format_text("{} needs --draft-model or {}", name("--num-draft-tokens"), name("--prompt-lookup"));
  }
  if (s.ignore_chat_template && (s.system_prompt || s.prefill_response || !s.chat_template_config.empty())) {
    return format_text("{}, {} and {} need the chat template; {} goes without it", name("--system-prompt"),
                       name("--prefill-response"), name("--chat-template-config"), name("--ignore-chat-template"));
  }
  return "";
}

PromptCacheOptions cache_options(const GenerationSettings& s) {
  PromptCacheOptions options;
  options.max_kv_size = s.max_kv_size.value_or(0);
  if (s.kv_bits) {
    options.kv_bits = *s.kv_bits;
    options.kv_group_size = s.kv_group_size.value_or(kKvGroupSize);
    options.quantized_kv_start = s.quantized_kv_start.value_or(kQuantizedKvStart);
  }
  return options;
}

GenerateOptions generate_options(const GenerationSettings& s, const Tokenizer& tokenizer,
                                 const std::optional<Model>& draft_model) {
  GenerateOptions options;
  options.max_tokens = s.max_tokens;
  options.sampler = s;
  options.logits_processors = processors(s, tokenizer);
  options.seed = s.seed;
  options.stop = s.stop;
  options.extra_eos_token_ids = resolve_eos_tokens(tokenizer, s.extra_eos_token);
  options.prefill_step_size = s.prefill_step_size;
  options.top_logprobs = s.top_logprobs;
  options.cache = cache_options(s);
  options.speculation.draft_model = draft_model;
  options.speculation.prompt_lookup = s.prompt_lookup;
  options.speculation.num_draft_tokens =
      s.num_draft_tokens.value_or(draft_model ? kDraftModelTokens : kEngineDraftTokens);
  if (s.deadline) {
    // A deadline beyond the clock's range never comes.
    constexpr float kLongest = 1e8f;  // three years
    const auto seconds = std::chrono::duration<double>(std::min(*s.deadline, kLongest));
    options.deadline =
        std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(seconds);
  }
  return options;
}

bool has_form(const GenerationSettings& settings) { return !forms(settings).empty(); }

}  // namespace mlxlm::cli
