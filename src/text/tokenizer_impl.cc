#include "text/tokenizer_impl.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "io/files.h"
#include "io/json.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace mlxlm::text {
namespace {

using io::Json;
namespace fs = std::filesystem;

/// An object from a file of the folder, or an empty one when the file is not there.
Json read_optional(const std::string& folder, const char* name) {
  const std::string path = (fs::path(folder) / name).string();
  if (!io::file_exists(path)) return Json::object();
  Json value = io::read_json_file(path);
  if (!value.is_object()) throw_invalid("{}: expected a JSON object", path);
  return value;
}

std::string text_member(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

/// As the classes of the transformers library for Llama have it: `legacy` and `add_prefix_space` of
/// tokenizer_config.json decide, whatever tokenizer.json says. Other classes, and models other than Llama, go by that.
MlxlmPrefix read_prefix(const std::string& folder, const Json& tokenizer_config) {
  const std::string own_class = text_member(tokenizer_config, "tokenizer_class");
  if (!own_class.empty() && own_class.find("LlamaTokenizer") == std::string::npos) return MLXLM_PREFIX_OF_FILE;
  const Json config = read_optional(folder, "config.json");
  const std::string name = own_class.empty() ? text_member(config, "tokenizer_class") : own_class;
  const bool code_llama = name == "CodeLlamaTokenizer" || name == "CodeLlamaTokenizerFast";
  const bool llama = name == "LlamaTokenizer" || name == "LlamaTokenizerFast";
  if ((!llama && !code_llama) || text_member(config, "model_type") != "llama") return MLXLM_PREFIX_OF_FILE;
  const auto is = [&](const char* key, bool value) {
    const auto it = tokenizer_config.find(key);
    return it != tokenizer_config.end() && it->is_boolean() && *it == value;
  };
  if (is("add_prefix_space", false)) return MLXLM_PREFIX_NEVER;
  return llama && is("legacy", true) ? MLXLM_PREFIX_ALWAYS : MLXLM_PREFIX_FIRST;
}

HfTokenizer read_tokenizer(const std::string& folder, const Json& config) {
  const fs::path base(folder);
  if (!fs::is_directory(base)) {
    throw_error(ErrorKind::not_found, "{}: expected a model folder; there is none", folder);
  }
  const std::string path = (base / "tokenizer.json").string();
  if (io::file_exists(path)) return HfTokenizer(io::read_text_file(path), path, read_prefix(folder, config));
  constexpr const char* kOtherForms[] = {"tokenizer.model", "sentencepiece.model", "spiece.model", "tekken.json",
                                         "tiktoken.model",  "vocab.json",          "vocab.txt",    "merges.txt"};
  for (const char* other : kOtherForms) {
    if (!io::file_exists((base / other).string())) continue;
    throw_error(ErrorKind::not_found,
                "{}: not found; the folder has {}, which is read only after conversion: in Python, "
                "transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes tokenizer.json",
                path, other);
  }
  throw_error(ErrorKind::not_found,
              "{}: not found, nor another form of tokenizer; download the model's tokenizer files", path);
}

/// Special tokens as texts: plain strings, or the "content" of a token object.
void collect_special_tokens(const Json& config, Json& tokens) {
  const auto text_of = [](const Json& value) -> Json {
    if (value.is_string()) return value;
    if (value.is_object() && value.contains("content") && value["content"].is_string()) return value["content"];
    return nullptr;
  };
  for (const auto& [key, value] : config.items()) {
    if (tokens.contains(key)) continue;
    if (key.ends_with("_token")) {
      if (Json text = text_of(value); !text.is_null()) tokens[key] = std::move(text);
    } else if (key == "additional_special_tokens" && value.is_array()) {
      Json list = Json::array();
      for (const Json& entry : value) {
        if (Json text = text_of(entry); !text.is_null()) list.push_back(std::move(text));
      }
      tokens[key] = std::move(list);
    }
  }
}

/// Whether the vocabulary has the markers of a reasoning section.
bool find_thinking(const HfTokenizer& hf) {
  constexpr const char* kMarkers[][2] = {{"<think>", "</think>"},
                                         {"<longcat_think>", "</longcat_think>"},
                                         {"<|think:start|>", "<|think:end|>"},
                                         {"<|channel>", "<channel|>"}};  // "<|channel>thought", of several tokens
  return std::any_of(std::begin(kMarkers), std::end(kMarkers),
                     [&](const auto& pair) { return hf.token_to_id(pair[0]) && hf.token_to_id(pair[1]); });
}

std::optional<int32_t> id_of(const HfTokenizer& hf, const Json& special_tokens, const char* name) {
  if (!special_tokens.contains(name)) return std::nullopt;
  return hf.token_to_id(special_tokens[name].get<std::string>());
}

}  // namespace

TokenizerImpl::TokenizerImpl(const std::string& folder)
    : TokenizerImpl(folder, read_optional(folder, "tokenizer_config.json")) {}

TokenizerImpl::TokenizerImpl(const std::string& folder, const Json& config)
    : hf_(read_tokenizer(folder, config)),
      plan_(make_decode_plan(io::parse_json(hf_.decoder_json(), hf_.where() + ": decoder"))) {
  context_.special_tokens = Json::object();
  collect_special_tokens(config, context_.special_tokens);
  collect_special_tokens(read_optional(folder, "special_tokens_map.json"), context_.special_tokens);
  templates_ = ChatTemplateSet::from_folder(folder, config);
  context_.enable_thinking = find_thinking(hf_);
  bos_token_id_ = id_of(hf_, context_.special_tokens, "bos_token");
  if (const auto eos = id_of(hf_, context_.special_tokens, "eos_token")) eos_token_ids_.push_back(*eos);
}

const GrammarVocabulary& TokenizerImpl::grammar_vocabulary() const {
  std::call_once(grammar_vocabulary_once_,
                 [this] { grammar_vocabulary_ = std::make_unique<const GrammarVocabulary>(hf_, plan_); });
  return *grammar_vocabulary_;
}

std::string TokenizerImpl::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  if (plan_.kind == DecodePlan::Kind::whole) return hf_.decode(ids, skip_special_tokens);
  StreamingDetokenizer detokenizer(hf_, plan_, skip_special_tokens);
  for (const int32_t id : ids) detokenizer.add_token(id);
  detokenizer.finalize();
  return detokenizer.take_segment();
}

std::string TokenizerImpl::render(std::string_view messages_json, const ChatTemplateOptions& options,
                                  std::optional<int64_t> fixed_time) const {
  ChatTemplateContext context = context_;
  context.fixed_time = fixed_time;
  return render_chat(templates_, messages_json, options, context);
}

}  // namespace mlxlm::text
