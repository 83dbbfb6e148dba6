// Chat templates of a model folder: finding, choosing and rendering them as the transformers library does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "io/json.h"
#include "mlxlm/tokenizer.h"
#include "text/rust_bridge.h"

namespace mlxlm::text {

/// One template. Compiled at its first use, so that a broken template does not keep a model from plain completion.
/// Safe to share between threads.
class ChatTemplate {
 public:
  /// `where` (a path) stands first in messages.
  ChatTemplate(std::string source, std::string where) : source_(std::move(source)), where_(std::move(where)) {}

  /// `variables` is the object of all template variables, with `messages` prepared by prepare_messages.
  std::string render(const io::Json& variables, std::optional<int64_t> fixed_time = std::nullopt) const;

  /// Whether content given as a list of parts reaches the output as text for messages of this role. Templates do not
  /// declare it, so a short conversation with two marked text parts is rendered: a template that handles lists prints
  /// both marks and nothing of the list's own notation. The answer is kept.
  bool handles_content_lists(const std::string& role, const io::Json& special_tokens) const;

  const std::string& source() const { return source_; }
  const std::string& where() const { return where_; }

 private:
  const JinjaTemplate& compiled() const;

  std::string source_;
  std::string where_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<JinjaTemplate> compiled_;
  mutable std::unordered_map<std::string, bool> handles_lists_;  // by role
};

/// The templates of a folder by name; "default" is the usual one. Read once, immutable.
class ChatTemplateSet {
 public:
  /// Reads, the later only where the earlier has nothing: chat_template.jinja and additional_chat_templates/*.jinja,
  /// "chat_template" of tokenizer_config.json (a text, or a list of named texts), chat_template.json.
  static ChatTemplateSet from_folder(const std::string& folder, const io::Json& tokenizer_config);

  bool empty() const { return templates_.empty(); }
  /// The template for a request: `tool_use` if there are tools and it exists, else `default`. Throws if there is none.
  std::shared_ptr<const ChatTemplate> choose(bool with_tools) const;
  /// A template by name, or null.
  std::shared_ptr<const ChatTemplate> find(const std::string& name) const;

 private:
  void add(const std::string& name, std::string source, const std::string& where);
  void add_config(const io::Json& value, const std::string& where);

  std::string folder_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates_;
};

/// What a rendering needs besides messages and options.
struct ChatTemplateContext {
  io::Json special_tokens;            ///< object: bos_token, eos_token, … as texts
  bool enable_thinking = false;       ///< default of the variable of that name
  std::optional<int64_t> fixed_time;  ///< for strftime_now; see JinjaTemplate::render
};

/// Renders a conversation. `messages_json` is a JSON array of objects. Of each message, members that are null are left
/// out, content that is null or absent is "", and content that is a list of text parts is passed as it is where the
/// template handles lists and otherwise joined in order with nothing between.
std::string render_chat(const ChatTemplateSet& templates, std::string_view messages_json,
                        const ChatTemplateOptions& options, const ChatTemplateContext& context);

}  // namespace mlxlm::text
