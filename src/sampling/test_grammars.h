// Tokenizers and requests for the tests of grammars.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/test_errors.h"
#include "io/json.h"
#include "mlxlm/error.h"
#include "mlxlm/sampling.h"
#include "text/test_tokenizers.h"

namespace mlxlm {

using io::Json;

/// Bytes as tokens, some longer ones that cut across lexemes and characters, and two special tokens. The longer ones
/// are found when they stand alone between spaces.
class ByteLevelModel {
 public:
  ByteLevelModel() {
    const std::vector<std::string> bytes = text::byte_alphabet();
    std::vector<std::string> tokens = bytes;
    for (const char* text :
         {"ab", "\"name", "\":", "{\"", "\"}", " true", "12", "\", \"", "\xF0\x9F", "\x98\x80", "a\xC3", "\n  "}) {
      std::string token;
      for (const char* c = text; *c != 0; ++c) token += bytes[static_cast<unsigned char>(*c)];
      tokens.push_back(token);
    }
    Json model = text::bpe_model(tokens);
    model["ignore_merges"] = true;
    eos = static_cast<int32_t>(tokens.size());
    tool = eos + 1;
    folder_
        .write("tokenizer.json",
               text::tokenizer_json(model, text::byte_level(), text::byte_level(), {"<|end|>", "<|tool|>"}))
        .write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
    tokenizer = std::make_unique<Tokenizer>(Tokenizer::from_folder(folder_.path()));
  }

  std::unique_ptr<Tokenizer> tokenizer;
  int32_t eos = 0, tool = 0;

 private:
  text::TestFolder folder_;
};

/// One tokenizer for all tests of this file: they also share what it keeps for grammars.
inline const ByteLevelModel& bytes() {
  static const ByteLevelModel model;
  return model;
}

/// Llama 2's way: the first token's leading space is no part of the text.
class SentencePieceModel {
 public:
  SentencePieceModel() {
    std::vector<std::string> tokens = text::fallback_bytes();
    for (const char* token : {"▁", "▁yes", "yes", "▁no", "▁▁x", "▁\xC3\xA9", "y", "e", "s"}) tokens.emplace_back(token);
    folder_
        .write("tokenizer.json",
               text::tokenizer_json(text::bpe_model(tokens, true), text::sentencepiece_decoder(true), {}, {"</s>"}))
        .write("tokenizer_config.json", R"({"eos_token": "</s>"})");
    tokenizer = std::make_unique<Tokenizer>(Tokenizer::from_folder(folder_.path()));
  }
  int32_t id(const std::string& token) const { return tokenizer->token_to_id(token).value(); }

  std::unique_ptr<Tokenizer> tokenizer;

 private:
  text::TestFolder folder_;
};

/// A request that generates after a prompt.
class Request {
 public:
  Request(const Tokenizer& tokenizer, const Grammar& grammar, std::vector<int32_t> eos = {})
      : tokenizer_(&tokenizer), eos_(eos.empty() ? tokenizer.eos_token_ids() : std::move(eos)) {
    processor_ = constrain(tokenizer, grammar);
    start();
  }

  void start() {
    tokens_ = {7, 7, 7};
    processor_->start({tokens_, vocab_size(), eos_});
  }

  int64_t vocab_size() const { return tokenizer_->vocab_size() + kPadding; }
  LogitsProcessor& processor() { return *processor_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  void add(int32_t id) { tokens_.push_back(id); }
  void truncate(size_t generated) { tokens_.resize(3 + generated); }

  /// The ids that the processor leaves.
  std::vector<int32_t> admitted() { return admitted_by(*processor_, tokens_); }
  std::vector<int32_t> admitted_by(LogitsProcessor& processor, std::span<const int32_t> tokens) const {
    std::vector<float> logits(static_cast<size_t>(vocab_size()), 1.5f);
    processor.process(tokens, logits);
    std::vector<int32_t> ids;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (logits[id] == 1.5f) {
        ids.push_back(static_cast<int32_t>(id));
      } else {
        EXPECT_EQ(logits[id], -std::numeric_limits<float>::infinity());
      }
    }
    return ids;
  }

  bool may_end() { return std::ranges::count(admitted(), eos_[0]) != 0; }
  /// The text that has been generated, without the EOS.
  std::string text() const {
    std::vector<int32_t> ids(tokens_.begin() + 3, tokens_.end());
    if (!ids.empty() && std::ranges::count(eos_, ids.back()) != 0) ids.pop_back();
    return tokenizer_->decode(ids);
  }
  void write(std::string_view text) {
    for (const int32_t id : tokenizer_->encode(text, false)) add(id);
  }

  static constexpr int64_t kPadding = 5;  // rows of the logits that are no tokens

 private:
  const Tokenizer* tokenizer_;
  std::vector<int32_t> eos_;
  std::shared_ptr<LogitsProcessor> processor_;
  std::vector<int32_t> tokens_;
};

/// Random ids until EOS; after `length` tokens those that close strings, objects and lists come first.
inline std::string walk(Request& request, uint32_t seed, size_t length = 30) {
  std::mt19937 random(seed);
  const int32_t eos = bytes().eos;
  for (size_t step = 0; step < 400; ++step) {
    std::vector<int32_t> ids = request.admitted();
    if (step >= length) {
      for (const char closing : {'"', '}', ']'}) {
        if (std::ranges::count(ids, closing) != 0) ids = {closing};
      }
      if (std::ranges::count(ids, eos) != 0) ids = {eos};
    }
    request.add(ids[random() % ids.size()]);
    if (request.tokens().back() == eos) return request.text();
  }
  ADD_FAILURE() << "no end in sight: " << request.text();
  return "";
}

inline const char* const kPerson = R"({"type": "object",
  "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                 "kind": {"enum": ["cat", "dog", null]}, "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
  "required": ["name", "age", "kind"], "additionalProperties": false})";

}  // namespace mlxlm
