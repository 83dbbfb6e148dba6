#include "convert/gguf_tokenizer_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace mlxlm::conversion {
namespace {

using io::GgufFile;
using io::Json;

using Ids = std::unordered_map<std::string_view, int64_t>;

// Padding that fills the vocabulary up to the embedding's rows; it stands for no text.
bool is_padding(const Token& token) { return token.type == TokenType::unused && token.text.starts_with("[PAD"); }

Ids ids_of(const Vocabulary& vocabulary) {
  Ids ids;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (!is_padding(vocabulary[id])) ids.emplace(vocabulary[id].text, static_cast<int64_t>(id));
  }
  return ids;
}

Json vocabulary_json(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string, Json>> members;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (!is_padding(vocabulary[id])) members.emplace_back(vocabulary[id].text, static_cast<int64_t>(id));
  }
  return io::make_object(std::move(members));
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json split_regex(const char* regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json sequence(const char* list, Json items) { return {{"type", "Sequence"}, {list, std::move(items)}}; }

/// What tokenizer.ggml.pre stands for.
struct PreTokenizer {
  std::string_view name;
  bool digits;        ///< every digit alone, before the rest
  const char* regex;  ///< null: the one built into ByteLevel
  bool nfc;
  bool ignore_merges;  ///< a whole piece that is a token is not merged up from bytes
  bool add_bos;
};

constexpr const char* kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<PreTokenizer, 7> kPreTokenizers = {{
    {"gpt-2", false, nullptr, false, false, false},
    {"smollm", true, nullptr, false, false, false},
    {"llama-bpe", false, kLlama3Regex, false, true, true},
    {"llama3", false, kLlama3Regex, false, true, true},
    {"llama-v3", false, kLlama3Regex, false, true, true},
    {"qwen2", false, kQwen2Regex, true, false, false},
    {"deepseek-r1-qwen", false, kQwen2Regex, true, false, false},
}};

const PreTokenizer& find_pre_tokenizer(const GgufFile& gguf) {
  const auto name = gguf.string("tokenizer.ggml.pre");
  std::string known;
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (pre.name == name) return pre;
    known += format_text("{}{}", known.empty() ? "" : ", ", pre.name);
  }
  throw_error(ErrorKind::unsupported, "{}: key 'tokenizer.ggml.pre': '{}' cannot be converted; supported: {}",
              gguf.path(), name, known);
}

Json file_merges(const GgufFile& gguf, const Ids& ids) {
  Json merges = Json::array();
  for (const auto merge : gguf.strings("tokenizer.ggml.merges")) {
    // The first character may itself be a space, so the separator is looked for behind it.
    const size_t space = merge.find(' ', 1);
    const auto left = merge.substr(0, space);
    const auto right = space == std::string_view::npos ? std::string_view{} : merge.substr(space + 1);
    std::string whole(left);
    whole.append(right);
    if (right.empty() || !ids.contains(left) || !ids.contains(right) || !ids.contains(whole)) {
      throw_invalid("{}: key 'tokenizer.ggml.merges': '{}': expected two tokens whose joined text is a token",
                    gguf.path(), merge);
    }
    merges.push_back({std::string(left), std::string(right)});
  }
  return merges;
}

/// SentencePiece merges the pair whose result has the best score, so every way to split a token is a merge, ranked by
/// the token's score.
Json score_merges(const GgufFile& gguf, const Vocabulary& vocabulary, const Ids& ids) {
  const auto scores = gguf.find_floats("tokenizer.ggml.scores");
  if (!scores || scores->size() != vocabulary.size()) {
    throw_invalid("{}: key 'tokenizer.ggml.scores': expected {} numbers, one for each token, got {}", gguf.path(),
                  vocabulary.size(), scores ? scores->size() : 0);
  }
  std::vector<size_t> order;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (std::isnan((*scores)[id])) throw_invalid("{}: key 'tokenizer.ggml.scores': token {} has NaN", gguf.path(), id);
    if (vocabulary[id].type == TokenType::normal) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return (*scores)[a] > (*scores)[b]; });
  const auto mergeable = [&](std::string_view piece) {
    const auto it = ids.find(piece);
    return it != ids.end() && vocabulary[static_cast<size_t>(it->second)].type == TokenType::normal;
  };
  Json merges = Json::array();
  for (const size_t id : order) {
    const std::string_view text = vocabulary[id].text;
    for (size_t cut = text.size() - 1; cut > 0; --cut) {
      const bool inside_character = (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80;
      if (inside_character || !mergeable(text.substr(0, cut)) || !mergeable(text.substr(cut))) continue;
      merges.push_back({std::string(text.substr(0, cut)), std::string(text.substr(cut))});
    }
  }
  return merges;
}

Json bpe_model(const Vocabulary& vocabulary, Json merges, bool ignore_merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", ignore_merges},
          {"vocab", vocabulary_json(vocabulary)},
          {"merges", std::move(merges)}};
}

bool is_utf8(std::string_view text) {
  try {
    Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace

std::string utf8(const GgufFile& gguf, std::string_view text, std::string_view key) {
  if (!is_utf8(text)) throw_invalid("{}: key '{}': '{}' is not valid UTF-8", gguf.path(), key, text);
  return std::string(text);
}

Vocabulary read_vocabulary(const GgufFile& gguf) {
  const auto texts = gguf.strings("tokenizer.ggml.tokens");
  const auto types = gguf.find_integers("tokenizer.ggml.token_type");
  if (types && types->size() != texts.size()) {
    throw_invalid("{}: key 'tokenizer.ggml.token_type': expected {} types, one for each token, got {}", gguf.path(),
                  texts.size(), types->size());
  }
  Vocabulary vocabulary;
  Ids seen;
  for (size_t id = 0; id < texts.size(); ++id) {
    const int64_t type = types ? (*types)[id] : 1;
    if (type < 1 || type > 6) {
      throw_invalid("{}: key 'tokenizer.ggml.token_type': token {}: expected 1 to 6, got {}", gguf.path(), id, type);
    }
    vocabulary.push_back({utf8(gguf, texts[id], "tokenizer.ggml.tokens"), static_cast<TokenType>(type)});
    const auto [it, added] = seen.emplace(texts[id], static_cast<int64_t>(id));
    if (!added && !is_padding(vocabulary.back())) {
      throw_invalid("{}: key 'tokenizer.ggml.tokens': tokens {} and {} are both '{}'", gguf.path(), it->second, id,
                    texts[id]);
    }
    if (texts[id].empty()) throw_invalid("{}: key 'tokenizer.ggml.tokens': token {} is empty", gguf.path(), id);
  }
  return vocabulary;
}

TokenizerParts byte_level_parts(const GgufFile& gguf, const Vocabulary& vocabulary) {
  const PreTokenizer& pre = find_pre_tokenizer(gguf);
  TokenizerParts parts;
  parts.model = bpe_model(vocabulary, file_merges(gguf, ids_of(vocabulary)), pre.ignore_merges);
  if (pre.nfc) parts.normalizer = {{"type", "NFC"}};
  Json steps = Json::array();
  if (pre.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (pre.regex != nullptr) steps.push_back(split_regex(pre.regex));
  steps.push_back(byte_level(pre.regex == nullptr));
  parts.pre_tokenizer = steps.size() == 1 ? steps.front() : sequence("pretokenizers", steps);
  parts.post_processor = byte_level(true);
  parts.decoder = byte_level(true);
  parts.add_bos = pre.add_bos;
  return parts;
}

TokenizerParts sentencepiece_parts(const GgufFile& gguf, const Vocabulary& vocabulary) {
  const bool prefix = gguf.find_bool("tokenizer.ggml.add_space_prefix").value_or(true);
  TokenizerParts parts;
  parts.model = bpe_model(vocabulary, score_merges(gguf, vocabulary, ids_of(vocabulary)), false);
  parts.model["fuse_unk"] = true;
  parts.model["byte_fallback"] = true;
  const auto unknown = std::find_if(vocabulary.begin(), vocabulary.end(),
                                    [](const Token& token) { return token.type == TokenType::unknown; });
  if (unknown != vocabulary.end()) parts.model["unk_token"] = unknown->text;
  const Json to_block = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const Json to_space = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  Json decoders = Json::array({to_space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (prefix) {
    parts.normalizer = sequence("normalizers", Json::array({{{"type", "Prepend"}, {"prepend", "\u2581"}}, to_block}));
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  } else {
    parts.normalizer = to_block;
  }
  parts.decoder = sequence("decoders", decoders);
  parts.add_bos = true;
  return parts;
}

}  // namespace mlxlm::conversion
