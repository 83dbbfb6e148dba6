// The table of settings, and how each kind of value is read from the command line and from JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <variant>

#include "base/error.h"
#include "base/format.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/settings.h"
#include "text/utf8.h"

namespace mlxlm::cli {
namespace {

using S = GenerationSettings;
constexpr float kNoLimit = std::numeric_limits<float>::max();

// The kinds of settings: where the value goes, and what it may be.
struct Whole {
  int S::*at;
  int lowest;
};
struct MaybeWhole {  // none unless given
  std::optional<int> S::*at;
  int lowest;
  const char* shown_default;
};
struct Real {
  float S::*at;
  float lowest, highest;
};
struct Seconds {
  std::optional<float> S::*at;
};
struct Flag {
  bool S::*at;
};
struct OnOff {  // takes true or false on the command line
  bool S::*at;
};
struct Seed {
  std::optional<uint64_t> S::*at;
};
struct Text {
  std::optional<std::string> S::*at;
};
struct Texts {
  std::vector<std::string> S::*at;
  int max_per_use;  // values after one option
};
struct Ids {
  std::vector<int32_t> S::*at;
};
struct Bias {
  std::vector<std::pair<int32_t, float>> S::*at;
};
struct JsonObject {  // as text
  std::string S::*at;
};
struct JsonSource {  // a file or the JSON itself on the command line, an object or its text in JSON
  std::optional<std::string> S::*at;
};
struct FileText {  // a file on the command line, its text in JSON
  std::optional<std::string> S::*at;
};

using Field = std::variant<Whole, MaybeWhole, Real, Seconds, Flag, OnOff, Seed, Text, Texts, Ids, Bias, JsonObject,
                           JsonSource, FileText>;

struct Setting {
  const char* names;  // of the option; the first long one gives the JSON name
  Field field;
  const char* help;
};

constexpr Setting kConversation[] = {
    {"--system-prompt", Text{&S::system_prompt}, "System message at the start of the conversation"},
    {"--chat-template-config", JsonObject{&S::chat_template_config}, "JSON object of further template variables"},
};
constexpr Setting kOnePrompt[] = {
    {"--prefill-response", Text{&S::prefill_response}, "Beginning of the answer, to be continued"},
    {"--ignore-chat-template", Flag{&S::ignore_chat_template}, "Use the prompt as it is"},
};
constexpr Setting kSampling[] = {
    {"--temp", Real{&S::temp, 0, kNoLimit}, "Temperature; 0: greedy, and the filters below do not apply"},
    {"--top-p", Real{&S::top_p, 0, 1}, "Keep the fewest tokens with this probability mass; 1: off"},
    {"--min-p", Real{&S::min_p, 0, 1}, "Drop tokens less likely than this times the likeliest; 0: off"},
    {"--min-tokens-to-keep", Whole{&S::min_tokens_to_keep, 1}, "--min-p leaves at least this many"},
    {"--top-k", Whole{&S::top_k, 0}, "Keep the K likeliest tokens; 0: off"},
    {"--xtc-probability", Real{&S::xtc_probability, 0, 1},
     "Chance, at each token, of dropping all but the least likely above the threshold; 0: off"},
    {"--xtc-threshold", Real{&S::xtc_threshold, 0, 0.5f}, "The threshold of --xtc-probability"},
    {"--seed", Seed{&S::seed},
     "Seed of the sampler; without one generate and batch draw one and report it in their JSON, chat takes 0"},
};
constexpr Setting kPenalties[] = {
    {"--repetition-penalty", Real{&S::repetition_penalty, 0, kNoLimit},
     "Divide (negative: multiply) the logits of seen tokens; 0 and 1: off"},
    {"--repetition-context-size", Whole{&S::repetition_context_size, 0}, "Last tokens that count as seen; 0: all"},
    {"--presence-penalty", Real{&S::presence_penalty, -kNoLimit, kNoLimit},
     "Subtract once from each seen token's logit"},
    {"--presence-context-size", Whole{&S::presence_context_size, 0}, "Last tokens that count; 0: all"},
    {"--frequency-penalty", Real{&S::frequency_penalty, -kNoLimit, kNoLimit},
     "Subtract for every time a token was seen"},
    {"--frequency-context-size", Whole{&S::frequency_context_size, 0}, "Last tokens that count; 0: all"},
    {"--penalize-prompt", OnOff{&S::penalize_prompt}, "Presence and frequency count the prompt too"},
    {"--logit-bias", Bias{&S::logit_bias}, "JSON object of token ids and what to add to their logits: {\"5\": -100}"},
    {"--ban-token-ids", Ids{&S::ban_token_ids}, "Token ids that never appear, such as 5,7,9"},
};
constexpr Setting kForm[] = {
    {"--json-schema", JsonSource{&S::json_schema}, "The answer is JSON that follows this schema"},
    {"--json-object", Flag{&S::json_object}, "The answer is a JSON object"},
    {"--regex", Text{&S::regex}, "The answer matches this regular expression"},
    {"--grammar", FileText{&S::grammar}, "The answer follows the Lark grammar in this file"},
    {"--choice", Texts{&S::choice, 1}, "The answer is one of these texts; repeatable"},
};
constexpr Setting kAnswer[] = {
    {"--max-tokens,-m", Whole{&S::max_tokens, -1}, "Most tokens of an answer; -1: until the model ends"},
    {"--min-tokens", Whole{&S::min_tokens, 0}, "The answer does not end before this many tokens"},
    {"--stop", Texts{&S::stop, 1}, "End at this text, which is not printed; repeatable"},
    {"--extra-eos-token", Texts{&S::extra_eos_token, 1000}, "Tokens (text or id) that end an answer too"},
    {"--thinking-budget", MaybeWhole{&S::thinking_budget, 0, ""}, "Most tokens of thinking before the answer begins"},
    {"--deadline", Seconds{&S::deadline}, "End the answer this many seconds after it was begun"},
    {"--prefill-step-size", Whole{&S::prefill_step_size, 1}, "Prompt tokens per pass; never changes the text"},
};
constexpr Setting kLogprobs[] = {
    {"--top-logprobs", Whole{&S::top_logprobs, 0}, "In JSON, report the N likeliest tokens of each step"},
};
constexpr Setting kMemory[] = {
    {"--max-kv-size", MaybeWhole{&S::max_kv_size, 1, ""},
     "Bound the memory: each token sees the first 4 and the latest tokens, N in all"},
    {"--kv-bits", MaybeWhole{&S::kv_bits, 1, ""}, "Quantise keys and values to 4 or 8 bits"},
    {"--kv-group-size", MaybeWhole{&S::kv_group_size, 1, "64"}, "Values that share a scale: 32, 64 or 128"},
    {"--quantized-kv-start", MaybeWhole{&S::quantized_kv_start, 0, "5000"}, "Position from which --kv-bits applies"},
};
constexpr Setting kSpeculation[] = {
    {"--prompt-lookup", Flag{&S::prompt_lookup}, "Guess that what followed the latest words before follows again"},
    {"--num-draft-tokens", MaybeWhole{&S::num_draft_tokens, 1, "3, or 10 with --prompt-lookup"},
     "Most tokens to guess at once"},
};

struct Section {
  SettingGroup group;
  const char* title;
  std::span<const Setting> settings;
};
constexpr Section kSections[] = {
    {SettingGroup::conversation, "Prompt", kConversation},
    {SettingGroup::one_prompt, "Prompt", kOnePrompt},
    {SettingGroup::sampling, "Sampling", kSampling},
    {SettingGroup::penalties, "Penalties and bans", kPenalties},
    {SettingGroup::form, "Form of the answer", kForm},
    {SettingGroup::answer, "Length and end", kAnswer},
    {SettingGroup::logprobs, "Output", kLogprobs},
    {SettingGroup::memory, "Keys and values", kMemory},
    {SettingGroup::speculation, kSpeculationTitle, kSpeculation},
};

// ---- Reading JSON

[[noreturn]] void wrong(std::string_view key, std::string_view expected, const io::Json& got) {
  throw_invalid("{}: expected {}, got {}", key, expected, printable(got.dump()));
}

template <typename T>
bool whole_number(const io::Json& value, T lowest, T& out) {
  if (!value.is_number_integer()) return false;
  // Of either kind, as the reader pleases: only unsigned ones hold what is beyond int64.
  if (!value.is_number_unsigned() && value.get<int64_t>() < 0) {
    const auto number = value.get<int64_t>();
    if (std::is_unsigned_v<T> || number < static_cast<int64_t>(lowest)) return false;
    out = static_cast<T>(number);
    return true;
  }
  const auto number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<T>::max())) return false;
  out = static_cast<T>(number);
  return out >= lowest;
}

bool real_number(const io::Json& value, float& out) {
  if (!value.is_number()) return false;
  out = value.get<float>();
  return std::isfinite(out);
}

std::string text_value(std::string_view key, const io::Json& value, const char* expected = "a text") {
  if (!value.is_string()) wrong(key, expected, value);
  return value.get<std::string>();
}

void read(std::string_view key, const io::Json& value, const Whole& f, S& out) {
  if (!whole_number(value, f.lowest, out.*f.at)) wrong(key, whole_expected(f.lowest), value);
}
void read(std::string_view key, const io::Json& value, const MaybeWhole& f, S& out) {
  if (!whole_number(value, f.lowest, (out.*f.at).emplace())) wrong(key, whole_expected(f.lowest), value);
}
void read(std::string_view key, const io::Json& value, const Real& f, S& out) {
  float& to = out.*f.at;
  if (!real_number(value, to) || to < f.lowest || to > f.highest) wrong(key, real_expected(f.lowest, f.highest), value);
}
void read(std::string_view key, const io::Json& value, const Seconds& f, S& out) {
  float& to = (out.*f.at).emplace();
  if (!real_number(value, to) || to < 0) wrong(key, real_expected(0, kNoLimit), value);
}
void read(std::string_view key, const io::Json& value, const Flag& f, S& out) {
  if (!value.is_boolean()) wrong(key, "true or false", value);
  out.*f.at = value.get<bool>();
}
void read(std::string_view key, const io::Json& value, const OnOff& f, S& out) { read(key, value, Flag{f.at}, out); }
void read(std::string_view key, const io::Json& value, const Seed& f, S& out) {
  if (!whole_number(value, uint64_t{0}, (out.*f.at).emplace())) wrong(key, kSeedExpected, value);
}
void read(std::string_view key, const io::Json& value, const Text& f, S& out) { out.*f.at = text_value(key, value); }
void read(std::string_view key, const io::Json& value, const Texts& f, S& out) {
  std::vector<std::string> texts;
  if (value.is_array()) {
    for (const io::Json& element : value) texts.push_back(text_value(key, element, "a list of texts"));
  } else {
    texts.push_back(text_value(key, value, "a text or a list of texts"));
  }
  out.*f.at = std::move(texts);
}
void read(std::string_view key, const io::Json& value, const Ids& f, S& out) { out.*f.at = read_token_ids(key, value); }
void read(std::string_view key, const io::Json& value, const Bias& f, S& out) {
  if (!value.is_object()) wrong(key, "an object of token ids and numbers, such as {\"5\": -100}", value);
  std::vector<std::pair<int32_t, float>> biases;
  for (const auto& [id_text, bias] : value.items()) {
    int32_t id = -1;
    if (!parse_whole(id_text, id) || id < 0) wrong(key, "token ids as keys", io::Json(id_text));
    float number = 0;
    if (!real_number(bias, number)) {
      throw_invalid("{}: expected a finite number for token {}, got {}", key, id, printable(bias.dump()));
    }
    biases.emplace_back(id, number);
  }
  out.*f.at = std::move(biases);
}
void read(std::string_view key, const io::Json& value, const JsonObject& f, S& out) {
  if (!value.is_object()) wrong(key, "a JSON object", value);
  out.*f.at = value.dump();
}
void read(std::string_view key, const io::Json& value, const JsonSource& f, S& out) {
  if (!value.is_object() && !value.is_string()) wrong(key, "a JSON object, or its text", value);
  out.*f.at = value.is_string() ? value.get<std::string>() : value.dump();
}
void read(std::string_view key, const io::Json& value, const FileText& f, S& out) {
  out.*f.at = text_value(key, value);
}

// ---- Declaring options

void declare(OptionGroup& group, const Setting& s, const Whole& f, S& out) {
  group.integer(s.names, out.*f.at, f.lowest, s.help);
}
void declare(OptionGroup& group, const Setting& s, const MaybeWhole& f, S& out) {
  OptionRef option = group.integer(s.names, out.*f.at, f.lowest, s.help);
  if (*f.shown_default != '\0') option.shown_default(f.shown_default);
}
void declare(OptionGroup& group, const Setting& s, const Real& f, S& out) {
  group.real(s.names, out.*f.at, f.lowest, f.highest, s.help);
}
void declare(OptionGroup& group, const Setting& s, const Seconds& f, S& out) {
  group.real(s.names, out.*f.at, 0, kNoLimit, s.help).type("SECONDS");
}
void declare(OptionGroup& group, const Setting& s, const Flag& f, S& out) { group.flag(s.names, out.*f.at, s.help); }
void declare(OptionGroup& group, const Setting& s, const OnOff& f, S& out) {
  group.boolean(s.names, out.*f.at, s.help);
}
void declare(OptionGroup& group, const Setting& s, const Seed& f, S& out) { group.seed(s.names, out.*f.at, s.help); }
void declare(OptionGroup& group, const Setting& s, const Text& f, S& out) { group.text(s.names, out.*f.at, s.help); }
void declare(OptionGroup& group, const Setting& s, const Texts& f, S& out) {
  group.list(s.names, out.*f.at, f.max_per_use, s.help);
}
void declare(OptionGroup& group, const Setting& s, const Ids& f, S& out) {
  group
      .parsed(s.names, s.help,
              [&to = out.*f.at](const std::string& name, const std::string& text) { to = parse_numbers(name, text); })
      .type("IDS");
}
void declare(OptionGroup& group, const Setting& s, const Bias& f, S& out) {
  group
      .parsed(s.names, s.help,
              [f, &out](const std::string& name, const std::string& text) {
                read(name, io::parse_json(text, name), f, out);
              })
      .type("JSON");
}
void declare(OptionGroup& group, const Setting& s, const JsonObject& f, S& out) {
  group
      .parsed(s.names, s.help,
              [f, &out](const std::string& name, const std::string& text) {
                read(name, io::parse_json(text, name), f, out);
              })
      .type("JSON");
}
void declare(OptionGroup& group, const Setting& s, const JsonSource& f, S& out) {
  group
      .parsed(s.names, s.help,
              [&to = out.*f.at](const std::string&, const std::string& text) {
                const size_t start = text.find_first_not_of(" \t\r\n");
                const bool inline_json = start != std::string::npos && text[start] == '{';
                to = inline_json ? text : read_prompt_file(text);
              })
      .type("FILE|JSON");
}
void declare(OptionGroup& group, const Setting& s, const FileText& f, S& out) {
  group
      .parsed(s.names, s.help,
              [&to = out.*f.at](const std::string&, const std::string& text) { to = read_prompt_file(text); })
      .type("FILE");
}

/// Calls visit(setting, key) for every setting until it returns true.
template <typename Visit>
bool find_setting(Visit visit) {
  for (const Section& section : kSections) {
    for (const Setting& setting : section.settings) {
      if (visit(setting, setting_key(setting.names))) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<int32_t> read_token_ids(std::string_view key, const io::Json& value) {
  std::vector<int32_t> ids;
  if (!value.is_array()) wrong(key, "a list of token ids", value);
  for (const io::Json& element : value) {
    if (!whole_number(element, 0, ids.emplace_back())) wrong(key, "token ids of at least 0", element);
  }
  return ids;
}

std::string setting_key(std::string_view option) {
  std::string key(option.substr(option.find("--") + 2));
  key.erase(std::min(key.find(','), key.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::vector<std::string> setting_keys() {
  std::vector<std::string> keys;
  find_setting([&keys](const Setting&, const std::string& key) {
    keys.push_back(key);
    return false;
  });
  return keys;
}

void add_settings(CLI::App& app, GenerationSettings& settings, std::initializer_list<SettingGroup> groups) {
  for (const Section& section : kSections) {
    if (std::find(groups.begin(), groups.end(), section.group) == groups.end()) continue;
    OptionGroup group(app, section.title);
    for (const Setting& setting : section.settings) {
      std::visit([&](const auto& field) { declare(group, setting, field, settings); }, setting.field);
    }
  }
}

bool read_setting(std::string_view key, const io::Json& value, GenerationSettings& settings) {
  return find_setting([&](const Setting& setting, const std::string& name) {
    if (name != key) return false;
    if (!value.is_null()) std::visit([&](const auto& field) { read(key, value, field, settings); }, setting.field);
    return true;
  });
}

}  // namespace mlxlm::cli
