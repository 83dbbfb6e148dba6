// What a grammar costs: grammar_bench FOLDER [VOCABULARY]. FOLDER has a tokenizer; VOCABULARY grows it to so many
// tokens with random words. Prints the time to prepare the tokens, to compile a schema, to find each token's mask on
// random walks through it, and to copy a state for a draft.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "io/files.h"
#include "io/json.h"
#include "mlxlm/error.h"
#include "mlxlm/sampling.h"
#include "text/test_tokenizers.h"
#include "text/tokenizer_impl.h"

namespace {

using mlxlm::io::Json;

const char* const kSchema = R"({"type": "object", "properties": {
  "title": {"type": "string"}, "year": {"type": "integer", "minimum": 1800, "maximum": 2100},
  "tags": {"type": "array", "items": {"type": "string", "maxLength": 30}, "maxItems": 8},
  "author": {"type": "object", "properties": {"name": {"type": "string"}, "email": {"type": "string", "format": "email"}},
             "required": ["name"], "additionalProperties": false},
  "rating": {"type": "number"}, "status": {"enum": ["draft", "published", "withdrawn"]},
  "extra": {"anyOf": [{"type": "null"}, {"type": "object"}]}},
  "required": ["title", "year", "tags", "author", "status"]})";

/// Microseconds of the processor, all threads together: other programs do not count.
double since(std::clock_t start) { return static_cast<double>(std::clock() - start) * 1e6 / CLOCKS_PER_SEC; }

void print(const char* what, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  std::printf("%-34s %6zu calls: median %8.1f us, p99 %8.1f us, most %8.1f us\n", what, us.size(), us[us.size() / 2],
              us[us.size() * 99 / 100], us.back());
}

/// The tokenizer of the folder with random words of two to eight letters after a space, up to `size` tokens.
void grow(const std::string& from, size_t size, mlxlm::text::TestFolder& to) {
  Json json = Json::parse(mlxlm::io::read_text_file(from + "/tokenizer.json"));
  Json& vocab = json["model"]["vocab"];
  std::mt19937 random(1);
  int64_t next = 0;
  for (const auto& [token, id] : vocab.items()) next = std::max(next, id.get<int64_t>() + 1);
  while (vocab.size() < size) {
    std::string word = random() % 2 == 0 ? "\xC4\xA0" : "";
    for (size_t n = 2 + random() % 7; n > 0; --n) word.push_back(static_cast<char>('a' + random() % 26));
    if (vocab.contains(word)) continue;
    vocab[word] = next++;
  }
  to.write("tokenizer.json", json.dump());
  to.write("tokenizer_config.json", mlxlm::io::read_text_file(from + "/tokenizer_config.json"));
}

void measure(const mlxlm::Tokenizer& tokenizer) {
  auto start = std::clock();
  tokenizer.impl().grammar_vocabulary();
  std::printf("%-34s %.1f ms for %d tokens\n", "preparing the tokens", since(start) / 1000, tokenizer.vocab_size());
  std::vector<double> compile, mask, copy, restart;
  const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
  const std::vector<float> zeros(vocab, 0.0f);
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    start = std::clock();
    const auto processor = mlxlm::constrain(tokenizer, {.kind = mlxlm::Grammar::Kind::json_schema, .source = kSchema});
    compile.push_back(since(start));
    std::vector<int32_t> tokens;
    start = std::clock();
    processor->start({tokens, static_cast<int64_t>(vocab), tokenizer.eos_token_ids()});
    restart.push_back(since(start));
    std::vector<float> logits;
    while (tokens.size() < 400) {
      logits = zeros;
      start = std::clock();
      processor->process(tokens, logits);
      mask.push_back(since(start));
      if (tokens.size() % 16 == 0) {
        start = std::clock();
        const auto draft = processor->clone();
        copy.push_back(since(start));
      }
      std::vector<int32_t> admitted, closing;
      for (size_t id = 0; id < vocab; ++id) {
        if (logits[id] != 0) continue;
        admitted.push_back(static_cast<int32_t>(id));
      }
      for (const char* token : {"\"", "}", "]"}) {
        const auto id = tokenizer.token_to_id(token);
        if (id && std::binary_search(admitted.begin(), admitted.end(), *id)) closing.push_back(*id);
      }
      if (!closing.empty() && random() % 8 == 0) admitted = closing;
      tokens.push_back(admitted[random() % admitted.size()]);
      if (tokens.back() == tokenizer.eos_token_ids().at(0)) break;
    }
  }
  print("compiling the schema", compile);
  print("start of a request", restart);
  print("mask of a token", mask);
  print("copy for a draft", copy);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: grammar_bench FOLDER [VOCABULARY]");
    mlxlm::text::TestFolder grown;
    std::string folder = argv[1];
    if (argc > 2) {
      grow(folder, std::stoul(argv[2]), grown);
      folder = grown.path();
    }
    measure(mlxlm::Tokenizer::from_folder(folder));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "grammar_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
