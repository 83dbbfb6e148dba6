#include "cli/prompt_tokens.h"

#include "base/error.h"

namespace mlxlm::cli {
namespace {

bool uses_template(const Tokenizer& tokenizer, const GenerationSettings& settings) {
  if (settings.ignore_chat_template) return false;
  if (tokenizer.has_chat_template()) return true;
  if (settings.system_prompt || settings.prefill_response || !settings.chat_template_config.empty()) {
    throw_invalid(
        "the model has no chat template, which a system prompt, a prefilled response and template variables need; put "
        "the text into the prompt");
  }
  return false;
}

ChatTemplateOptions template_options(const GenerationSettings& settings) {
  ChatTemplateOptions options;
  options.add_generation_prompt = !settings.prefill_response;
  options.continue_final_message = settings.prefill_response.has_value();
  options.variables_json = settings.chat_template_config;
  return options;
}

std::vector<Message> conversation(const GenerationSettings& settings, const std::string& user_text) {
  std::vector<Message> messages;
  if (settings.system_prompt) messages.push_back({"system", *settings.system_prompt});
  messages.push_back({"user", user_text});
  if (settings.prefill_response) messages.push_back({"assistant", *settings.prefill_response});
  return messages;
}

std::vector<int32_t> not_empty(std::vector<int32_t> ids) {
  if (ids.empty()) throw_invalid("prompt: expected at least one token, got an empty prompt");
  return ids;
}

}  // namespace

std::vector<int32_t> prompt_token_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                      const std::string& text) {
  if (uses_template(tokenizer, settings)) {
    return not_empty(tokenizer.apply_chat_template(conversation(settings, text), template_options(settings)));
  }
  // Special tokens are added unless the text writes its own BOS.
  const std::optional<int32_t> bos = tokenizer.bos_token_id();
  const std::string bos_text = bos ? tokenizer.id_to_token(*bos).value_or("") : "";
  const bool has_bos = !bos_text.empty() && text.starts_with(bos_text);
  return not_empty(tokenizer.encode(text, !has_bos));
}

std::vector<int32_t> continuation_token_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                            const std::string& text) {
  // No special tokens: the beginning, which would have them, is cached.
  if (!uses_template(tokenizer, settings)) return not_empty(tokenizer.encode(text, false));
  constexpr const char* kMark = "<query>";
  const ChatTemplateOptions options = template_options(settings);
  const size_t start = tokenizer.render_chat_template(conversation(settings, kMark), options).find(kMark);
  std::string rendered = tokenizer.render_chat_template(conversation(settings, text), options);
  if (start == std::string::npos || start > rendered.size()) {
    throw_invalid(
        "the chat template does not show a message as it is, so the place where the prompt goes on from the cache is "
        "not known; write the rest of the conversation yourself and give --ignore-chat-template");
  }
  return not_empty(tokenizer.encode(rendered.substr(start), false));
}

std::vector<int32_t> messages_token_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                        const io::Json& messages) {
  if (!messages.is_array() || messages.empty()) throw_invalid("messages: expected a list of messages");
  for (const io::Json& message : messages) {
    if (!message.is_object() || !message.contains("role")) {
      throw_invalid("messages: expected objects with a role and content, got {}", message.dump().substr(0, 80));
    }
  }
  if (!uses_template(tokenizer, settings))
    throw_invalid("messages: they need the model's chat template; give a prompt");
  io::Json all = io::Json::array();
  if (settings.system_prompt && messages[0]["role"] != "system") {
    all.push_back({{"role", "system"}, {"content", *settings.system_prompt}});
  }
  for (const io::Json& message : messages) all.push_back(message);
  if (settings.prefill_response) all.push_back({{"role", "assistant"}, {"content", *settings.prefill_response}});
  return not_empty(tokenizer.apply_chat_template_json(all.dump(), template_options(settings)));
}

}  // namespace mlxlm::cli
