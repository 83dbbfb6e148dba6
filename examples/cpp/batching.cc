// Requests that join a running batch, each with settings of its own: batching MODEL_FOLDER
#include <mlxlm/mlxlm.h>

#include <exception>
#include <iostream>
#include <map>

int main(int argc, char** argv) try {
  if (argc != 2) throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: batching MODEL_FOLDER");
  auto [model, tokenizer] = mlxlm::load(argv[1]);
  const auto ask = [&](const char* question) { return tokenizer.apply_chat_template({{"user", question}}); };

  mlxlm::BatchGenerator batch(model, tokenizer, {.completion_batch_size = 16});
  std::map<int64_t, std::string> texts;
  texts[batch.insert(ask("Name a river."), {.max_tokens = 30})];
  texts[batch.insert(ask("Invent a name."), {.max_tokens = 20, .sampler = {.temp = 1.0f}, .seed = 5})];
  bool joined = false;
  while (!batch.idle()) {
    for (const auto& [uid, response, error] : batch.next().responses) {
      if (error) throw *error;  // of this request alone; the others would go on
      texts[uid] += response.text;
      if (response.finish_reason) std::cout << uid << " (" << *response.finish_reason << "): " << texts[uid] << '\n';
    }
    if (!joined) texts[batch.insert(ask("What is 2 + 3?"), {.max_tokens = 10, .stop = {"\n"}})];
    joined = true;
  }

  // Where all prompts are known beforehand, one call does it.
  const auto result =
      mlxlm::batch_generate(model, tokenizer, {ask("Name a river."), ask("Name a hill.")}, {{.max_tokens = 30}});
  std::cout << result.stats.generation_tokens << " tokens, " << result.stats.generation_tps << " tokens/s\n";
  if (result.texts[0] != texts.begin()->second) throw std::runtime_error("the neighbours changed the text");
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
