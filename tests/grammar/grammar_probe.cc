// Drives grammar constraints from tests in Python: one JSON request per line in, one JSON answer per line out.
// {"op": "load", "folder"} → {"vocab_size", "eos"}
// {"op": "walk", "kind", "source" or "choices", "seed", "length"} → {"ids", "text", "forced"}: random admitted ids
// until EOS; after `length` of them, those that end the text soon come first. A failure is answered with {"error":
// message}.
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/json.h"
#include "mlxlm/error.h"
#include "mlxlm/sampling.h"
#include "text/detokenizer.h"

namespace {

using mlxlm::Tokenizer;
using mlxlm::io::Json;

constexpr size_t kMostTokens = 2000;

mlxlm::Grammar grammar_of(const Json& request) {
  using Kind = mlxlm::Grammar::Kind;
  const std::map<std::string, Kind> kinds = {{"json_schema", Kind::json_schema},
                                             {"json_object", Kind::json_object},
                                             {"regex", Kind::regex},
                                             {"lark", Kind::lark},
                                             {"choice", Kind::choice}};
  return {.kind = kinds.at(request.at("kind").get<std::string>()),
          .source = request.value("source", ""),
          .choices = request.value("choices", std::vector<std::string>())};
}

/// One request: the ids chosen so far and what may follow.
class Walk {
 public:
  Walk(const Tokenizer& tokenizer, const Json& request)
      : tokenizer_(tokenizer),
        processor_(mlxlm::constrain(tokenizer, grammar_of(request))),
        random_(request.at("seed").get<uint32_t>()) {
    processor_->start({{}, tokenizer.vocab_size(), tokenizer.eos_token_ids()});
  }

  Json run(size_t length) {
    const int32_t eos = tokenizer_.eos_token_ids().at(0);
    while (ids_.empty() || ids_.back() != eos) {
      if (ids_.size() == kMostTokens) throw mlxlm::Error(mlxlm::ErrorKind::internal, "no end in sight");
      const std::optional<int32_t> forced = processor_->forced_token(ids_);
      std::vector<int32_t> admitted = next();
      if (forced.has_value() != (admitted.size() == 1) || (forced && *forced != admitted[0])) {
        throw mlxlm::Error(mlxlm::ErrorKind::internal, "forced_token() does not say what process() leaves");
      }
      forced_ += forced.has_value();
      ids_.push_back(ids_.size() < length ? any_of(admitted) : closing_of(admitted, eos));
    }
    ids_.pop_back();
    mlxlm::text::StreamingDetokenizer stream(tokenizer_);
    for (const int32_t id : ids_) stream.add_token(id);
    stream.finalize();
    return Json{{"ids", ids_}, {"text", stream.take_segment()}, {"forced", forced_}};
  }

 private:
  std::vector<int32_t> next() {
    std::vector<float> logits(static_cast<size_t>(tokenizer_.vocab_size()), 0.0f);
    processor_->process(ids_, logits);
    std::vector<int32_t> admitted;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (logits[id] == 0.0f) admitted.push_back(static_cast<int32_t>(id));
    }
    return admitted;
  }

  /// First a random first character and then a random token, so that rare characters have their chance.
  int32_t any_of(const std::vector<int32_t>& admitted) {
    std::map<std::string, std::vector<int32_t>> by_start;
    for (const int32_t id : admitted) by_start[tokenizer_.id_to_token(id).value_or("").substr(0, 1)].push_back(id);
    auto group = by_start.begin();
    std::advance(group, random_() % by_start.size());
    return group->second[random_() % group->second.size()];
  }

  int32_t closing_of(const std::vector<int32_t>& admitted, int32_t eos) {
    if (std::ranges::count(admitted, eos) != 0) return eos;
    for (const char* closing : {"\"", "<0x22>", "}", "<0x7D>", "]", "<0x5D>"}) {
      const auto id = tokenizer_.token_to_id(closing);
      if (id && std::ranges::count(admitted, *id) != 0) return *id;
    }
    return any_of(admitted);
  }

  const Tokenizer& tokenizer_;
  std::shared_ptr<mlxlm::LogitsProcessor> processor_;
  std::mt19937 random_;
  std::vector<int32_t> ids_;
  int forced_ = 0;
};

Json answer(std::optional<Tokenizer>& tokenizer, const Json& request) {
  const std::string op = request.at("op").get<std::string>();
  if (op == "load") {
    tokenizer = Tokenizer::from_folder(request.at("folder").get<std::string>());
    return Json{{"vocab_size", tokenizer->vocab_size()}, {"eos", tokenizer->eos_token_ids()}};
  }
  if (!tokenizer) return Json{{"error", "load a folder first"}};
  if (op == "walk") return Walk(*tokenizer, request).run(request.at("length").get<size_t>());
  return Json{{"error", "unknown op " + op}};
}

}  // namespace

int main() {
  std::optional<Tokenizer> tokenizer;
  std::string line;
  while (std::getline(std::cin, line)) {
    Json result;
    try {
      result = answer(tokenizer, Json::parse(line));
    } catch (const std::exception& error) {
      result = Json{{"error", error.what()}};
    }
    std::cout << result.dump() << std::endl;
  }
  return 0;
}
