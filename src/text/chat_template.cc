#include "text/chat_template.h"

#include "base/error.h"

namespace mlxlm::text {
namespace {

using io::Json;

// Words that no template or vocabulary contains.
constexpr const char* kMarks[] = {"mlxlm-first-part", "mlxlm-second-part"};

Json message(const std::string& role, Json content) { return Json{{"role", role}, {"content", std::move(content)}}; }

/// A conversation that templates accept and in which the message of `role` has two text parts.
Json probe_messages(const std::string& role) {
  Json parts = Json::array();
  for (const char* mark : kMarks) parts.push_back(Json{{"type", "text"}, {"text", mark}});
  Json messages = Json::array();
  if (role == "system" || role == "developer") {
    messages.push_back(message(role, parts));
    messages.push_back(message("user", "question"));
  } else if (role == "user") {
    messages.push_back(message(role, parts));
  } else {
    messages.push_back(message("user", "question"));
    if (role == "tool") {
      messages.push_back(message("assistant", ""));
      Json call = {{"name", "f"}, {"arguments", Json::object()}};
      messages.back()["tool_calls"] =
          Json::array({Json{{"id", "call00001"}, {"type", "function"}, {"function", call}}});
    }
    messages.push_back(message(role, parts));
    if (role == "tool") messages.back()["tool_call_id"] = "call00001";
  }
  return messages;
}

std::string dump(const Json& value) {
  try {
    return value.dump();
  } catch (const Json::exception& error) {
    throw_invalid("chat template variables: expected UTF-8 text: {}", error.what());
  }
}

}  // namespace

const JinjaTemplate& ChatTemplate::compiled() const {
  const std::lock_guard lock(mutex_);
  if (!compiled_) compiled_ = std::make_unique<JinjaTemplate>(source_, where_);
  return *compiled_;
}

std::string ChatTemplate::render(const Json& variables, std::optional<int64_t> fixed_time) const {
  return compiled().render(dump(variables), fixed_time);
}

bool ChatTemplate::handles_content_lists(const std::string& role, const Json& special_tokens) const {
  const JinjaTemplate& jinja = compiled();
  const std::lock_guard lock(mutex_);
  if (const auto known = handles_lists_.find(role); known != handles_lists_.end()) return known->second;
  Json variables = special_tokens;
  variables["messages"] = probe_messages(role);
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = false;
  bool handled = false;
  try {
    const std::string text = jinja.render(dump(variables), 0);
    const size_t first = text.find(kMarks[0]);
    const size_t second = text.find(kMarks[1]);
    // A list that was merely printed shows its keys between the marks, in Python's or JSON's quotes.
    handled = first < second && second != std::string::npos &&
              text.substr(first, second - first).find_first_of("'\"{") == std::string::npos;
  } catch (const Error&) {
    // The template adds text to the content, or refuses the role: it takes plain text at best.
  }
  handles_lists_.emplace(role, handled);
  return handled;
}

}  // namespace mlxlm::text
