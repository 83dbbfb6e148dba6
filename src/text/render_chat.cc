// Preparing messages and variables, and rendering.
#include <algorithm>

#include "base/error.h"
#include "text/chat_template.h"

namespace mlxlm::text {
namespace {

using io::Json;

// Appended to the message to be continued, to find its place in the text. The space tells whether the template trims.
constexpr std::string_view kContinueMark = "mlxlm-continue-here ";

/// The names under which messages carry an assistant's reasoning, the one templates read first.
constexpr const char* kReasoningNames[] = {"reasoning_content", "thinking", "reasoning"};

std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 100) text.replace(100, std::string::npos, "…");
  return text;
}

Json parse_array(std::string_view text, const std::string& where) {
  Json value = io::parse_json(text, where);
  if (!value.is_array()) throw_invalid("{}: expected a JSON array, got {}", where, excerpt(value));
  return value;
}

/// The text of all parts with nothing between, for templates that take plain text.
std::string join_parts(const Json& parts, const std::string& where) {
  std::string text;
  for (const Json& part : parts) {
    if (part.is_string()) {
      text += part.get<std::string>();
    } else if (part.is_object() && part.contains("text") && part["text"].is_string()) {
      text += part["text"].get<std::string>();
    } else {
      throw_invalid("{}: the chat template takes text only; expected parts of type text, got {}", where, excerpt(part));
    }
  }
  return text;
}

/// Templates read reasoning as "reasoning_content", some as "thinking"; clients also send "reasoning".
void alias_reasoning(Json& message) {
  for (const char* name : kReasoningNames) {
    if (!message.contains(name)) continue;
    const Json reasoning = message[name];
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

Json prepare_message(const Json& given, const std::string& where, const ChatTemplate& chat_template,
                     const Json& special_tokens) {
  if (!given.is_object()) throw_invalid("{}: expected an object, got {}", where, excerpt(given));
  Json message = Json::object();
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null() || key == "content") message[key] = value;
  }
  if (!message.contains("role") || !message["role"].is_string()) {
    throw_invalid("{}: expected a text \"role\", got {}", where, excerpt(given));
  }
  Json& content = message["content"];
  if (content.is_null()) {
    content = "";
  } else if (content.is_array()) {
    if (!chat_template.handles_content_lists(message["role"].get<std::string>(), special_tokens)) {
      content = join_parts(content, where + ".content");
    }
  } else if (!content.is_string() && !content.is_object()) {
    throw_invalid("{}.content: expected text, a list of parts or null, got {}", where, excerpt(content));
  }
  alias_reasoning(message);
  return message;
}

/// Marks the end of the last message and returns the text that has to appear in the rendering.
std::string mark_last(Json& messages) {
  if (messages.empty()) throw_invalid("continue_final_message: expected at least one message");
  Json* content = &messages.back()["content"];
  if (content->is_array()) {
    const auto last = std::find_if(content->rbegin(), content->rend(), [](const Json& part) {
      return part.is_object() && part.contains("text") && part["text"].is_string();
    });
    if (last == content->rend()) throw_invalid("continue_final_message: the last message has no text to continue");
    content = &(*last)["text"];
  }
  if (!content->is_string()) throw_invalid("continue_final_message: the last message has no text to continue");
  std::string text = content->get<std::string>();
  *content = text + std::string(kContinueMark);
  return text;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// Cuts the rendering where the last message ends, so that it stays open.
std::string cut_at_mark(const std::string& rendered, const std::string& text, const std::string& where) {
  const size_t at = rendered.rfind(trim(kContinueMark));
  if (at == std::string::npos || rendered.find(trim(text)) == std::string::npos) {
    throw_invalid(
        "{}: continue_final_message: the last message does not appear in the rendered chat, so it cannot be continued "
        "with this template",
        where);
  }
  if (rendered.compare(at, kContinueMark.size(), kContinueMark) == 0) return rendered.substr(0, at);
  // The template trims messages, so what stands before the mark is trimmed as well.
  const std::string_view before = std::string_view(rendered).substr(0, at);
  return std::string(before.substr(0, before.find_last_not_of(" \t\n\r\f\v") + 1));
}

Json make_variables(const ChatTemplateOptions& options, const ChatTemplateContext& context) {
  Json variables = context.special_tokens.is_object() ? context.special_tokens : Json::object();
  variables["enable_thinking"] = context.enable_thinking;
  variables["tools"] = options.tools_json.empty() ? Json() : parse_array(options.tools_json, "tools");
  variables["documents"] = options.documents_json.empty() ? Json() : parse_array(options.documents_json, "documents");
  // An open last message has no room for the opening of another turn.
  variables["add_generation_prompt"] = options.add_generation_prompt && !options.continue_final_message;
  if (options.variables_json.empty()) return variables;
  const Json extra = io::parse_json(options.variables_json, "chat template variables");
  if (!extra.is_object()) throw_invalid("chat template variables: expected a JSON object, got {}", excerpt(extra));
  for (const auto& [name, value] : extra.items()) {
    if (name == "messages" || name == "tools" || name == "documents" || name == "add_generation_prompt" ||
        name == "continue_final_message") {
      throw_invalid("chat template variables: \"{}\" is an argument of its own; give it there", name);
    }
    variables[name] = value;
  }
  return variables;
}

}  // namespace

std::string render_chat(const ChatTemplateSet& templates, std::string_view messages_json,
                        const ChatTemplateOptions& options, const ChatTemplateContext& context) {
  Json variables = make_variables(options, context);
  const Json& tools = variables["tools"];
  std::shared_ptr<const ChatTemplate> chosen;
  if (options.chat_template.empty()) {
    chosen = templates.choose(tools.is_array() && !tools.empty());
  } else if (auto named = templates.find(options.chat_template)) {
    chosen = std::move(named);
  } else {
    chosen = std::make_shared<const ChatTemplate>(options.chat_template, "the given chat template");
  }
  Json messages = Json::array();
  for (const Json& message : parse_array(messages_json, "messages")) {
    const std::string where = "messages[" + std::to_string(messages.size()) + "]";
    messages.push_back(prepare_message(message, where, *chosen, context.special_tokens));
  }
  std::string last;
  if (options.continue_final_message) last = mark_last(messages);
  variables["messages"] = std::move(messages);
  std::string text = chosen->render(variables, context.fixed_time);
  return options.continue_final_message ? cut_at_mark(text, last, chosen->where()) : text;
}

}  // namespace mlxlm::text
