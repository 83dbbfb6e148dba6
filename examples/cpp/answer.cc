#include <mlxlm/mlxlm.h>

#include <iostream>

int main(int argc, char** argv) {
  auto [model, tokenizer] = mlxlm::load(argc > 1 ? argv[1] : "mlx-community/Qwen3-0.6B-4bit");
  auto prompt = tokenizer.apply_chat_template({{"user", "Why is the sky blue?"}});
  for (const auto& r : mlxlm::stream_generate(model, tokenizer, prompt, {.max_tokens = 200})) {
    std::cout << r.text << std::flush;
  }
}
