// Settings of one generation. One table of them makes the options of generate, chat and batch, and the keys of a batch
// line; settings_table.cc holds it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"
#include "mlxlm/mlxlm.h"

namespace CLI {
class App;
}

namespace mlxlm::cli {

/// The values as they were given; the engine's options are made of them for each request. Names and defaults are those
/// of mlx_lm.generate where it has the setting.
struct GenerationSettings : SamplerOptions, LogitsProcessorOptions {
  GenerationSettings() { top_p = 1; }

  // Length and end of the answer
  int max_tokens = 100;
  std::vector<std::string> stop{};
  std::vector<std::string> extra_eos_token{};  // a token's text, or its id in digits
  int min_tokens = 0;
  std::optional<int> thinking_budget{};
  std::optional<float> deadline{};  // seconds from the start of generation
  int prefill_step_size = 2048;
  int top_logprobs = 0;

  // Beside the sampler's and the penalties' own
  std::optional<uint64_t> seed{};
  std::vector<int32_t> ban_token_ids{};

  // Form of the answer: at most one of these
  std::optional<std::string> json_schema{};  // the schema's text
  bool json_object = false;
  std::optional<std::string> regex{};
  std::optional<std::string> grammar{};  // the text of a Lark grammar
  std::vector<std::string> choice{};

  // Keys and values; none: the default, which differs from that value only for messages
  std::optional<int> max_kv_size{};
  std::optional<int> kv_bits{};
  std::optional<int> kv_group_size{};
  std::optional<int> quantized_kv_start{};

  // Speculation
  bool prompt_lookup = false;
  std::optional<int> num_draft_tokens{};

  // Conversation
  std::optional<std::string> system_prompt{};
  std::string chat_template_config{};  // a JSON object, or empty
  std::optional<std::string> prefill_response{};
  bool ignore_chat_template = false;
};

/// The headings of the help; a command names those it has.
enum class SettingGroup {
  conversation,
  one_prompt,  // what a conversation of many turns does not have
  sampling,
  penalties,
  form,
  answer,
  logprobs,
  memory,
  speculation,
};

/// Declares the options of these groups, bound to `settings`, whose values are the defaults that the help shows.
void add_settings(CLI::App& app, GenerationSettings& settings, std::initializer_list<SettingGroup> groups);
/// The JSON name of a setting's option: "--top-p" is top_p.
std::string setting_key(std::string_view option);
/// The JSON names of all settings.
std::vector<std::string> setting_keys();
/// Reads the setting of this JSON name. False: there is none. Throws Error(invalid_value): the name, what was expected
/// and what was got. null leaves the setting as it is.
bool read_setting(std::string_view key, const io::Json& value, GenerationSettings& settings);

/// A JSON list of token ids. Throws as read_setting does.
std::vector<int32_t> read_token_ids(std::string_view key, const io::Json& value);

/// How a message calls a setting.
enum class NameStyle { option, key };
/// What is wrong with the settings together, or "". `cache_given`: they continue a cache from a file.
std::string settings_conflict(const GenerationSettings& settings, NameStyle style, bool has_draft_model = false,
                              bool cache_given = false);

/// How keys and values are held; the default where no setting says otherwise.
PromptCacheOptions cache_options(const GenerationSettings& settings);

/// The engine's options. Processors are made anew, so that every request has its own. Throws Error for what does not
/// fit the model.
GenerateOptions generate_options(const GenerationSettings& settings, const Tokenizer& tokenizer,
                                 const std::optional<Model>& draft_model);

/// Whether the answer must have a form: a JSON schema, a grammar, one of some texts.
bool has_form(const GenerationSettings& settings);

}  // namespace mlxlm::cli
