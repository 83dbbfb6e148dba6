#include "cli/batch_request.h"

#include <algorithm>
#include <set>

#include "base/format.h"
#include "cli/prompt.h"
#include "cli/prompt_tokens.h"
#include "cli/suggest.h"

namespace mlxlm::cli {
namespace {

constexpr const char* kPromptKeys[] = {"prompt", "messages", "prompt_ids"};

struct Alias {
  const char* alias;
  const char* key;
};
constexpr Alias kAliases[] = {{"temperature", "temp"}};

std::vector<std::string> known_keys() {
  std::vector<std::string> keys = setting_keys();
  keys.emplace_back("id");
  keys.insert(keys.end(), std::begin(kPromptKeys), std::end(kPromptKeys));
  for (const Alias& alias : kAliases) keys.emplace_back(alias.alias);
  return keys;
}

[[noreturn]] void unknown_key(const std::string& key) {
  const std::vector<std::string> keys = known_keys();
  const std::string near = suggest(key, keys);
  throw LineError{key, format_text("unknown key \"{}\"{}", printable(key),
                                   near.empty() ? "" : format_text("; did you mean \"{}\"?", near))};
}

io::Json parse_object(std::string_view line) {
  io::Json json;
  try {
    json = io::parse_json(line, "not JSON");
  } catch (const Error& error) {
    throw LineError{"", error.what()};
  }
  if (!json.is_object()) {
    throw LineError{"", format_text("expected a JSON object, got {}", printable(json.dump()))};
  }
  return json;
}

bool valid_id(const io::Json& id) { return id.is_string() || id.is_number_integer() || id.is_null(); }

/// The one key of the prompt.
std::string prompt_key(const io::Json& json) {
  std::string found;
  for (const char* key : kPromptKeys) {
    if (!json.contains(key)) continue;
    if (!found.empty()) throw LineError{key, format_text("{} and {}: give one of them", found, key)};
    found = key;
  }
  if (found.empty()) throw LineError{"prompt", "expected one of prompt, messages and prompt_ids, got none"};
  return found;
}

void read_settings(const io::Json& json, GenerationSettings& settings) {
  std::set<std::string> given;
  for (const auto& [name, value] : json.items()) {
    const bool prompt = std::find(std::begin(kPromptKeys), std::end(kPromptKeys), name) != std::end(kPromptKeys);
    if (name == "id" || prompt) continue;
    const auto alias = std::find_if(std::begin(kAliases), std::end(kAliases),
                                    [&name = name](const Alias& a) { return name == a.alias; });
    const std::string key = alias == std::end(kAliases) ? name : alias->key;
    if (!given.insert(key).second) throw LineError{name, format_text("{} is given twice, also as {}", name, key)};
    try {
      if (!read_setting(key, value, settings)) unknown_key(name);
    } catch (const Error& error) {
      throw LineError{name, error.what()};
    }
  }
}

std::vector<int32_t> line_prompt_ids(const std::string& key, const io::Json& value, const GenerationSettings& settings,
                                     const Tokenizer& tokenizer) {
  if (key == "prompt_ids") return read_token_ids(key, value);
  if (key == "messages") return messages_token_ids(tokenizer, settings, value);
  if (!value.is_string()) {
    throw LineError{key, format_text("prompt: expected a text, got {}", printable(value.dump()))};
  }
  return prompt_token_ids(tokenizer, settings, value.get<std::string>());
}

}  // namespace

io::Json line_id(std::string_view line) {
  try {
    const io::Json json = parse_object(line);
    const auto id = json.find("id");
    return id != json.end() && valid_id(*id) ? *id : io::Json();
  } catch (const LineError&) {
    return {};
  }
}

LineError as_line_error(const Error& error) {
  const std::string message = error.what();
  const std::string name = message.substr(0, message.find_first_of(":["));  // "logit_bias[5]: …" is about logit_bias
  const std::string key = name.starts_with("--") ? setting_key(name) : name;
  const std::vector<std::string> keys = known_keys();
  return {std::find(keys.begin(), keys.end(), key) == keys.end() ? "" : key, message};
}

BatchRequest read_batch_line(std::string_view line, const GenerationSettings& defaults, const Tokenizer& tokenizer,
                             bool has_draft_model) {
  const io::Json json = parse_object(line);
  const auto id = json.find("id");
  if (id != json.end() && !valid_id(*id)) {
    throw LineError{"id", format_text("id: expected a text or a whole number, got {}", printable(id->dump()))};
  }
  BatchRequest request{{}, defaults};
  read_settings(json, request.settings);
  const std::string conflict = settings_conflict(request.settings, NameStyle::key, has_draft_model);
  if (!conflict.empty()) throw LineError{"", conflict};
  const std::string key = prompt_key(json);
  try {
    request.prompt_ids = line_prompt_ids(key, json[key], request.settings, tokenizer);
  } catch (const Error& error) {
    throw LineError{key, error.what()};
  }
  return request;
}

}  // namespace mlxlm::cli
