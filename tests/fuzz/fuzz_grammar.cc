// Grammars from strangers: an error or a mask whose every token the grammar then accepts, never a crash or a hang. The
// first byte chooses the kind, the second which of the admitted tokens are taken.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "mlxlm/error.h"
#include "text/decode_plan.h"
#include "text/grammar_bridge.h"
#include "text/rust_bridge.h"
#include "text/test_tokenizers.h"

namespace {

const mlxlm::text::GrammarVocabulary& vocabulary() {
  static const mlxlm::text::GrammarVocabulary made = [] {
    std::vector<std::string> tokens = mlxlm::text::byte_alphabet();
    for (const char* token : {"ab", "\":", "{\"", "12", "true"}) tokens.emplace_back(token);
    const std::string json = mlxlm::text::tokenizer_json(mlxlm::text::bpe_model(tokens), mlxlm::text::byte_level(),
                                                         mlxlm::text::byte_level(), {"<t>"});
    const mlxlm::text::HfTokenizer tokenizer(json, "fuzz/tokenizer.json");
    return mlxlm::text::GrammarVocabulary(tokenizer, mlxlm::text::make_decode_plan(mlxlm::text::byte_level()));
  }();
  return made;
}

void follow(MlxlmGrammarKind kind, size_t choice, std::string_view source) {
  mlxlm::text::GrammarState state(vocabulary(), kind, source);
  std::vector<uint32_t> words((static_cast<size_t>(vocabulary().size()) + 31) / 32);
  for (int step = 0; step < 8; ++step) {
    state.mask(words);
    std::vector<int32_t> admitted;
    for (int32_t id = 0; id < vocabulary().size(); ++id) {
      if (words[static_cast<size_t>(id) / 32] >> id % 32 & 1) admitted.push_back(id);
    }
    if (admitted.empty()) return;
    const int32_t id = admitted[(choice + static_cast<size_t>(step) * 7) % admitted.size()];
    mlxlm::text::GrammarState copy = state;
    state.accept(id);
    copy.accept(id);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view source(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    follow(static_cast<MlxlmGrammarKind>(data[0] % 4), data[1], source);
  } catch (const mlxlm::Error& error) {
    if (error.kind() == mlxlm::ErrorKind::internal) std::abort();  // a fault in the crate
  }
  return 0;
}
