// tokenizer.json and chat templates from strangers: an error or a result, never a crash or a hang.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/json.h"
#include "mlxlm/error.h"
#include "text/decode_plan.h"
#include "text/detokenizer.h"
#include "text/rust_bridge.h"

namespace {

constexpr std::string_view kVariables =
    R"({"messages":[{"role":"user","content":"a<|im_end|>\u00e9"},{"role":"assistant","content":"b"}],)"
    R"("bos_token":"<s>","eos_token":"</s>","add_generation_prompt":true,"tools":[{"name":"f"}]})";

void try_tokenizer(std::string_view json) {
  const mlxlm::text::HfTokenizer tokenizer(json, "fuzz/tokenizer.json");
  const auto plan =
      mlxlm::text::make_decode_plan(mlxlm::io::parse_json(tokenizer.decoder_json(), "fuzz/tokenizer.json: decoder"));
  mlxlm::text::StreamingDetokenizer stream(tokenizer, plan);
  for (const int32_t id : tokenizer.encode("Hi \xc3\xa9  x\n", true)) stream.add_token(id);
  for (int32_t id = -1; id < 40; ++id) stream.add_token(id);
  stream.finalize();
  const std::string text = stream.take_segment();
  mlxlm::io::Json(text).dump();  // throws unless it is UTF-8
}

void try_template(std::string_view source) {
  mlxlm::text::JinjaTemplate(source, "fuzz/chat_template.jinja").render(kVariables, 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] == 'T') {
      try_tokenizer(rest);
    } else {
      try_template(rest);
    }
  } catch (const mlxlm::Error&) {  // the right answer to nonsense
  }
  return 0;
}
