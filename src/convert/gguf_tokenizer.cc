#include "convert/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "convert/gguf_tokenizer_parts.h"

namespace mlxlm::conversion {
namespace {

using io::GgufFile;
using io::Json;

// Control tokens that end a turn of a conversation. Files often name only the end of the text as EOS.
constexpr std::array<std::string_view, 4> kTurnEnds = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>"};

/// Builds one file's plan.
class TokenizerPlanner {
 public:
  TokenizerPlanner(const GgufFile& gguf, int64_t context_length) : gguf_(gguf), context_length_(context_length) {}

  TokenizerPlan plan() {
    const auto kind = gguf_.string("tokenizer.ggml.model");
    if (kind != "gpt2" && kind != "llama") {
      throw_error(ErrorKind::unsupported,
                  "{}: key 'tokenizer.ggml.model': '{}' cannot be converted; supported: gpt2, llama", gguf_.path(),
                  kind);
    }
    sentencepiece_ = kind == "llama";
    vocabulary_ = read_vocabulary(gguf_);
    plan_.bos = token_id("bos_token_id");
    plan_.pad = token_id("padding_token_id");
    unknown_ = token_id("unknown_token_id");
    collect_eos();

    const TokenizerParts parts =
        sentencepiece_ ? sentencepiece_parts(gguf_, vocabulary_) : byte_level_parts(gguf_, vocabulary_);
    add_bos_ = gguf_.find_bool("tokenizer.ggml.add_bos_token").value_or(parts.add_bos);
    add_eos_ = gguf_.find_bool("tokenizer.ggml.add_eos_token").value_or(false);
    if (add_bos_ && !plan_.bos) fail_no_token("add_bos_token", "bos_token_id");
    if (add_eos_ && plan_.eos.empty()) fail_no_token("add_eos_token", "eos_token_id");
    plan_.tokenizer = {
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"added_tokens", added_tokens()},
        {"normalizer", parts.normalizer},
        {"pre_tokenizer", parts.pre_tokenizer},
        {"post_processor", post_processor(parts.post_processor)},
        {"decoder", parts.decoder},
        {"model", parts.model},
    };
    plan_.config = config();
    return std::move(plan_);
  }

 private:
  std::optional<int64_t> token_id(const char* name) const {
    const std::string key = format_text("tokenizer.ggml.{}", name);
    const auto id = gguf_.find_integer(key);
    if (id && (*id < 0 || *id >= static_cast<int64_t>(vocabulary_.size()))) {
      throw_invalid("{}: key '{}': expected a token of the vocabulary of {}, got {}", gguf_.path(), key,
                    vocabulary_.size(), *id);
    }
    return id;
  }

  [[noreturn]] void fail_no_token(const char* flag, const char* key) const {
    throw_invalid("{}: tokens are to be added ({}), but key 'tokenizer.ggml.{}' is missing", gguf_.path(), flag, key);
  }

  void collect_eos() {
    for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      if (const auto id = token_id(name)) add_eos_id(*id);
    }
    for (size_t id = 0; id < vocabulary_.size(); ++id) {
      const bool ends = std::find(kTurnEnds.begin(), kTurnEnds.end(), vocabulary_[id].text) != kTurnEnds.end();
      if (ends && vocabulary_[id].type != TokenType::normal) add_eos_id(static_cast<int64_t>(id));
    }
  }

  void add_eos_id(int64_t id) {
    if (std::find(plan_.eos.begin(), plan_.eos.end(), id) == plan_.eos.end()) plan_.eos.push_back(id);
  }

  std::string text_of(int64_t id) const { return vocabulary_[static_cast<size_t>(id)].text; }

  bool is_special(int64_t id) const {
    const TokenType type = vocabulary_[static_cast<size_t>(id)].type;
    return type == TokenType::control || type == TokenType::unknown;
  }

  Json added_tokens() const {
    Json added = Json::array();
    for (size_t i = 0; i < vocabulary_.size(); ++i) {
      const auto id = static_cast<int64_t>(i);
      if (!is_special(id) && vocabulary_[i].type != TokenType::user_defined) continue;
      added.push_back({{"id", id},
                       {"content", vocabulary_[i].text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", is_special(id)}});
    }
    return added;
  }

  Json post_processor(const Json& own) const {
    if (!add_bos_ && !add_eos_) return own;
    Json single = Json::array();
    Json pair = Json::array();
    Json special = Json::object();
    const auto add_token = [&](int64_t id, int type_id) {
      const std::string text = text_of(id);
      special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
      return Json{{"SpecialToken", {{"id", text}, {"type_id", type_id}}}};
    };
    for (const auto& [name, type_id] : {std::pair("A", 0), std::pair("B", 1)}) {
      Json sequence = Json::array();
      if (add_bos_) sequence.push_back(add_token(*plan_.bos, type_id));
      sequence.push_back({{"Sequence", {{"id", name}, {"type_id", type_id}}}});
      if (add_eos_) sequence.push_back(add_token(plan_.eos.front(), type_id));
      if (type_id == 0) single = sequence;
      pair.insert(pair.end(), sequence.begin(), sequence.end());
    }
    Json templates = {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
    if (own.is_null()) return templates;
    return {{"type", "Sequence"}, {"processors", Json::array({own, templates})}};
  }

  Json chat_template() const {
    const auto main = gguf_.find_string("tokenizer.chat_template");
    const auto names = gguf_.find_strings("tokenizer.chat_templates");
    if (!names || names->empty()) return main ? Json(utf8(gguf_, *main, "tokenizer.chat_template")) : Json(nullptr);
    Json list = Json::array();
    const auto add = [&](std::string_view name, std::string_view text) {
      list.push_back({{"name", name}, {"template", utf8(gguf_, text, "tokenizer.chat_template")}});
    };
    if (main) add("default", *main);
    for (const auto name : *names) {
      const std::string checked = utf8(gguf_, name, "tokenizer.chat_templates");
      add(checked, gguf_.string(format_text("tokenizer.chat_template.{}", checked)));
    }
    return list;
  }

  Json config() const {
    Json config = {{"add_bos_token", add_bos_},
                   {"add_eos_token", add_eos_},
                   {"clean_up_tokenization_spaces", false},
                   {"model_max_length", context_length_},
                   {"tokenizer_class", "PreTrainedTokenizerFast"}};
    const auto name = [&](const char* key, std::optional<int64_t> id) {
      if (id) config[key] = text_of(*id);
    };
    name("bos_token", plan_.bos);
    if (!plan_.eos.empty()) name("eos_token", plan_.eos.front());
    name("pad_token", plan_.pad);
    name("unk_token", unknown_);
    if (Json text = chat_template(); !text.is_null()) config["chat_template"] = std::move(text);
    return config;
  }

  const GgufFile& gguf_;
  int64_t context_length_;
  bool sentencepiece_ = false;
  bool add_bos_ = false;
  bool add_eos_ = false;
  Vocabulary vocabulary_;
  std::optional<int64_t> unknown_;
  TokenizerPlan plan_;
};

}  // namespace

TokenizerPlan plan_tokenizer(const GgufFile& gguf, int64_t context_length) {
  return TokenizerPlanner(gguf, context_length).plan();
}

}  // namespace mlxlm::conversion
