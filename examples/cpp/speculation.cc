// The same text with and without guessing ahead: speculation MODEL_FOLDER [DRAFT_MODEL_FOLDER]
#include <mlxlm/mlxlm.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 2) {
    throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: speculation MODEL_FOLDER [DRAFT_MODEL_FOLDER]");
  }
  auto [model, tokenizer] = mlxlm::load(argv[1]);
  const auto prompt =
      tokenizer.apply_chat_template({{"user", "Repeat this sentence three times: The sea is blue and deep and cold."}});

  std::vector<int32_t> expected;
  const auto run = [&](const std::string& name, const mlxlm::SpeculationOptions& speculation) {
    std::vector<int32_t> tokens;
    mlxlm::GenerationResponse last;
    for (const auto& r :
         mlxlm::stream_generate(model, tokenizer, prompt,
                                {.max_tokens = 60, .sampler = {.temp = 0.5f}, .seed = 3, .speculation = speculation})) {
      tokens.push_back(r.token);
      last = r;
    }
    std::cout << name << ": " << last.accepted_tokens << " of " << last.draft_tokens << " guesses right, "
              << last.generation_tps << " tokens/s\n";
    if (expected.empty()) expected = tokens;
    if (tokens != expected) throw std::runtime_error(name + " changed the tokens");
  };
  run("plain", {});
  run("prompt lookup", {.prompt_lookup = true});
  run("draft model", {.draft_model = argc > 2 ? mlxlm::load(argv[2]).model : model, .num_draft_tokens = 3});
  std::cout << tokenizer.decode(expected, true) << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
