// Asks a model one question and prints the answer as it is made: chat MODEL_FOLDER [QUESTION]
#include <mlxlm/mlxlm.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 2) throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: chat MODEL_FOLDER [QUESTION]");
  auto [model, tokenizer] = mlxlm::load(argv[1]);
  auto prompt = tokenizer.apply_chat_template({{"user", argc > 2 ? argv[2] : "Why is the sky blue?"}});
  for (const auto& r :
       mlxlm::stream_generate(model, tokenizer, prompt, {.max_tokens = 200, .sampler = {.temp = 0.7f}})) {
    std::cout << r.text << std::flush;
  }
  std::cout << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
