// Drives the text layer from tests in Python: one JSON request per line in, one JSON answer per line out.
// Requests: {"op": "load", "folder"}, {"op": "encode", "text", "special"}, {"op": "decode", "ids", "skip"},
// {"op": "stream", "ids", "skip"}, {"op": "render", "messages", …, "time"}, {"op": "chat", …} (ids of the rendering).
// A failure is answered with {"error": message, "kind": ErrorKind}.
#include <iostream>
#include <optional>
#include <string>

#include "io/json.h"
#include "mlxlm/error.h"
#include "mlxlm/tokenizer.h"
#include "text/detokenizer.h"
#include "text/tokenizer_impl.h"

namespace {

using mlxlm::Tokenizer;
using mlxlm::io::Json;

Json describe(const Tokenizer& tokenizer) {
  Json answer{{"vocab_size", tokenizer.vocab_size()},
              {"eos", tokenizer.eos_token_ids()},
              {"bos", nullptr},
              {"has_thinking", tokenizer.has_thinking()},
              {"has_chat_template", tokenizer.has_chat_template()}};
  if (const auto bos = tokenizer.bos_token_id()) answer["bos"] = *bos;
  return answer;
}

Json stream(const Tokenizer& tokenizer, const Json& request) {
  mlxlm::text::StreamingDetokenizer detokenizer(tokenizer, request.value("skip", false));
  Json pieces = Json::array();
  for (const Json& id : request.at("ids")) {
    detokenizer.add_token(id.get<int32_t>());
    pieces.push_back(detokenizer.take_segment());
  }
  detokenizer.finalize();
  pieces.push_back(detokenizer.take_segment());
  return Json{{"pieces", pieces}};
}

std::string json_option(const Json& request, const char* name) {
  return request.contains(name) && !request[name].is_null() ? request[name].dump() : std::string();
}

std::string render(const Tokenizer& tokenizer, const Json& request) {
  mlxlm::ChatTemplateOptions options;
  options.add_generation_prompt = request.value("add_generation_prompt", true);
  options.continue_final_message = request.value("continue_final_message", false);
  options.tools_json = json_option(request, "tools");
  options.documents_json = json_option(request, "documents");
  options.variables_json = json_option(request, "variables");
  options.chat_template = request.value("chat_template", "");
  std::optional<int64_t> time;
  if (request.contains("time")) time = request["time"].get<int64_t>();
  return tokenizer.impl().render(request.at("messages").dump(), options, time);
}

Json answer(std::optional<Tokenizer>& tokenizer, const Json& request) {
  const std::string op = request.at("op").get<std::string>();
  if (op == "load") {
    tokenizer = Tokenizer::from_folder(request.at("folder").get<std::string>());
    return describe(*tokenizer);
  }
  if (!tokenizer) return Json{{"error", "load a folder first"}};
  if (op == "encode") {
    return Json{{"ids", tokenizer->encode(request.at("text").get<std::string>(), request.value("special", true))}};
  }
  if (op == "decode") {
    return Json{
        {"text", tokenizer->decode(request.at("ids").get<std::vector<int32_t>>(), request.value("skip", false))}};
  }
  if (op == "stream") return stream(*tokenizer, request);
  if (op == "render") return Json{{"text", render(*tokenizer, request)}};
  if (op == "chat") return Json{{"ids", tokenizer->encode(render(*tokenizer, request), false)}};
  return Json{{"error", "unknown op " + op}};
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  std::optional<Tokenizer> tokenizer;
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      result = answer(tokenizer, mlxlm::io::parse_json(line, "request"));
    } catch (const mlxlm::Error& error) {
      result = Json{{"error", error.what()}, {"kind", static_cast<int>(error.kind())}};
    }
    std::cout << result.dump() << std::endl;
  }
}
