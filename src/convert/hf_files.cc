#include "convert/hf_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "io/files.h"

namespace mlxlm::conversion {
namespace {

namespace fs = std::filesystem;
using io::Json;

// One of these makes a tokenizer.
constexpr std::array<std::string_view, 6> kVocabularies = {
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "sentencepiece.bpe.model", "tiktoken.model"};
constexpr std::array<std::string_view, 6> kCompanions = {"added_tokens.json",       "chat_template.json",
                                                         "generation_config.json",  "merges.txt",
                                                         "special_tokens_map.json", "tokenizer_config.json"};
constexpr std::array<std::string_view, 3> kSuffixes = {".jinja", ".py", ".tiktoken"};
constexpr const char* kMoreTemplates = "additional_chat_templates";

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool ends_with_one_of(std::string_view name) {
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// {"__float__": "Infinity"} for what JSON has no number for: the reverse of io::replace_float_objects.
void tag_floats(Json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    const char* name = number > 0 ? "Infinity" : "-Infinity";
    value = Json{{"__float__", std::isnan(number) ? "NaN" : name}};
    return;
  }
  if (value.is_structured()) {
    for (auto& child : value) tag_floats(child);
  }
}

/// Python's truth of a number or list.
bool says_something(const Json& eos) {
  if (eos.is_null()) return false;
  if (eos.is_number()) return eos != 0;
  if (eos.is_boolean()) return eos.get<bool>();
  return !eos.empty();
}

}  // namespace

Json new_config(const io::ModelFolder& folder, const Json& quantization) {
  Json config = folder.config;
  const auto eos = folder.generation_config.find("eos_token_id");
  if (eos != folder.generation_config.end() && says_something(*eos)) config["eos_token_id"] = *eos;
  for (const char* key : {"_name_or_path", "vision_config", "quantization", "quantization_config"}) config.erase(key);
  if (!quantization.is_null()) {
    config["quantization"] = quantization;
    config["quantization_config"] = quantization;
  }
  tag_floats(config);
  return sorted(config);
}

std::vector<std::string> files_to_copy(const std::string& path) {
  std::vector<std::string> names;
  bool has_vocabulary = false;
  for (const std::string& name : io::list_folder(path)) {
    const bool vocabulary = is_one_of(name, kVocabularies) || name.ends_with(".tiktoken");
    if (!vocabulary && !is_one_of(name, kCompanions) && !ends_with_one_of(name)) continue;
    if (!is_file(fs::path(path) / name)) continue;
    has_vocabulary |= vocabulary;
    names.push_back(name);
  }
  if (!has_vocabulary) {
    throw_error(ErrorKind::not_found, "{}: no tokenizer; looked for {} and *.tiktoken", path,
                join(kVocabularies, ", "));
  }
  std::error_code ignored;
  const fs::path more = fs::path(path) / kMoreTemplates;
  if (fs::is_directory(more, ignored)) {
    for (const std::string& name : io::list_folder(more.string())) {
      if (name.ends_with(".jinja") && is_file(more / name)) names.push_back((fs::path(kMoreTemplates) / name).string());
    }
  }
  return names;
}

void copy_files(const std::string& from, const std::vector<std::string>& names, const NewFolder& to) {
  for (const std::string& name : names) {
    const fs::path target = to.file(name);
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    if (!error) fs::copy_file(fs::path(from) / name, target, error);
    if (error) {
      throw_error(ErrorKind::io, "{}: cannot copy to {}: {}", (fs::path(from) / name).string(), target.string(),
                  error.message());
    }
  }
}

std::string model_card() {
  return "---\nlanguage: en\nlibrary_name: mlx\npipeline_tag: text-generation\ntags:\n- mlx\n---\n";
}

}  // namespace mlxlm::conversion
