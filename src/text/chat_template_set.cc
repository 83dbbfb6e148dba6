// Finding the templates of a model folder.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "io/files.h"
#include "text/chat_template.h"
#include "text/utf8.h"

namespace mlxlm::text {

using io::Json;
namespace fs = std::filesystem;

void ChatTemplateSet::add(const std::string& name, std::string source, const std::string& where) {
  require_utf8(source, where);
  templates_.try_emplace(name, std::make_shared<const ChatTemplate>(std::move(source), where));
}

void ChatTemplateSet::add_config(const Json& value, const std::string& where) {
  if (value.is_null()) return;
  if (value.is_string()) {
    add("default", value.get<std::string>(), where + ": chat_template");
    return;
  }
  if (!value.is_array()) throw_invalid("{}: chat_template: expected text or a list, got {}", where, value.type_name());
  for (const Json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("template") ||
        !entry["template"].is_string()) {
      throw_invalid("{}: chat_template: expected a list of objects with the texts name and template, got {}", where,
                    entry.dump().substr(0, 100));
    }
    const std::string name = entry["name"].get<std::string>();
    add(name, entry["template"].get<std::string>(), format_text("{}: chat_template \"{}\"", where, name));
  }
}

ChatTemplateSet ChatTemplateSet::from_folder(const std::string& folder, const Json& tokenizer_config) {
  ChatTemplateSet set;
  set.folder_ = folder;
  const fs::path base(folder);
  const auto read = [&](const fs::path& path, const std::string& name) {
    set.add(name, io::read_text_file(path.string()), path.string());
  };
  if (const fs::path path = base / "chat_template.jinja"; io::file_exists(path.string())) read(path, "default");
  if (const fs::path more = base / "additional_chat_templates"; fs::is_directory(more)) {
    for (const std::string& name : io::list_folder(more.string())) {
      if (fs::path(name).extension() == ".jinja") read(more / name, fs::path(name).stem().string());
    }
  }
  if (tokenizer_config.contains("chat_template")) {
    set.add_config(tokenizer_config["chat_template"], (base / "tokenizer_config.json").string());
  }
  const std::string last = (base / "chat_template.json").string();
  if (!set.templates_.contains("default") && io::file_exists(last)) {
    const Json document = io::read_json_file(last);
    if (!document.is_object() || !document.contains("chat_template")) {
      throw_invalid("{}: expected an object with \"chat_template\"", last);
    }
    set.add_config(document["chat_template"], last);
  }
  return set;
}

std::shared_ptr<const ChatTemplate> ChatTemplateSet::find(const std::string& name) const {
  const auto found = templates_.find(name);
  return found == templates_.end() ? nullptr : found->second;
}

std::shared_ptr<const ChatTemplate> ChatTemplateSet::choose(bool with_tools) const {
  if (with_tools) {
    if (auto tool_use = find("tool_use")) return tool_use;
  }
  if (auto usual = find("default")) return usual;
  if (templates_.empty()) {
    throw_invalid("{}: this model has no chat template; give one, or use the raw prompt", folder_);
  }
  std::string names;
  for (const auto& [name, unused] : templates_) names += (names.empty() ? "" : ", ") + name;
  throw_invalid("{}: none of the chat templates ({}) is called default; name one", folder_, names);
}

}  // namespace mlxlm::text
