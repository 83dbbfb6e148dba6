// Small model folders for tests, written into a temporary folder that vanishes with the object.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/json.h"

namespace mlxlm::text {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mlxlm-text-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  TestFolder& write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return *this;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// A tokenizer.json with the given model, decoder and added tokens (special, ids after the vocabulary's).
inline std::string tokenizer_json(const io::Json& model, const io::Json& decoder, const io::Json& pre_tokenizer = {},
                                  const std::vector<std::string>& added = {}) {
  io::Json tokens = io::Json::array();
  size_t id = model.at("vocab").size();
  for (const std::string& content : added) {
    tokens.push_back({{"id", id++},
                      {"content", content},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  return io::Json{{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
                  {"added_tokens", tokens},    {"normalizer", nullptr}, {"pre_tokenizer", pre_tokenizer},
                  {"post_processor", nullptr}, {"decoder", decoder},    {"model", model}}
      .dump();
}

/// A BPE model without merges, its tokens in the given order.
inline io::Json bpe_model(const std::vector<std::string>& tokens, bool byte_fallback = false) {
  io::Json vocab = io::Json::object();
  for (const std::string& token : tokens) vocab[token] = vocab.size();
  return io::Json{{"type", "BPE"},
                  {"dropout", nullptr},
                  {"unk_token", nullptr},
                  {"continuing_subword_prefix", nullptr},
                  {"end_of_word_suffix", nullptr},
                  {"fuse_unk", false},
                  {"byte_fallback", byte_fallback},
                  {"ignore_merges", false},
                  {"vocab", vocab},
                  {"merges", io::Json::array()}};
}

inline io::Json byte_level() {
  return io::Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
}

/// GPT-2's characters for the bytes 0 to 255, in order: the smallest vocabulary that spells every text.
inline std::vector<std::string> byte_alphabet() {
  std::vector<std::string> characters;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 0x100; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const unsigned code = printable ? byte : next++;
    std::string character;
    if (code < 0x80) {
      character.push_back(static_cast<char>(code));
    } else {
      character.push_back(static_cast<char>(0xC0 | code >> 6));
      character.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    }
    characters.push_back(character);
  }
  return characters;
}

/// The tokens "<0x00>" to "<0xFF>".
inline std::vector<std::string> fallback_bytes() {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::vector<std::string> tokens;
  for (size_t byte = 0; byte < 0x100; ++byte) {
    tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
  }
  return tokens;
}

/// Llama 2's decoder; without `strip` it is Gemma's.
inline io::Json sentencepiece_decoder(bool strip) {
  io::Json parts = io::Json::array();
  parts.push_back({{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}});
  parts.push_back(io::Json{{"type", "ByteFallback"}});
  parts.push_back(io::Json{{"type", "Fuse"}});
  if (strip) parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return io::Json{{"type", "Sequence"}, {"decoders", parts}};
}

}  // namespace mlxlm::text
