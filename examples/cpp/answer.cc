#include <mlxlm/mlxlm.h>

#include <iostream>

int main(int, char** argv) {
  auto [model, tokenizer] = mlxlm::load(argv[1]);
  auto prompt = tokenizer.apply_chat_template({{"user", "Why is the sky blue?"}});
  for (const auto& r : mlxlm::stream_generate(model, tokenizer, prompt, {.max_tokens = 200})) {
    std::cout << r.text << std::flush;
  }
}
