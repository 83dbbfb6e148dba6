// Penalties, a grammar, and a processor of one's own: processors MODEL_FOLDER
#include <mlxlm/mlxlm.h>

#include <exception>
#include <iostream>
#include <limits>

/// No token twice in a row.
class NoStutter : public mlxlm::LogitsProcessor {
 public:
  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    logits[static_cast<size_t>(tokens.back())] = -std::numeric_limits<float>::infinity();
  }
  std::unique_ptr<LogitsProcessor> clone() const override { return std::make_unique<NoStutter>(*this); }
  std::string name() const override { return "NoStutter"; }
};

int main(int argc, char** argv) try {
  if (argc != 2) throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: processors MODEL_FOLDER");
  auto [model, tokenizer] = mlxlm::load(argv[1]);
  const auto prompt = tokenizer.apply_chat_template({{"user", "Is the sea warm today?"}});

  mlxlm::GenerateOptions options{.max_tokens = 40};
  options.logits_processors =
      mlxlm::make_logits_processors({.repetition_penalty = 1.2f, .repetition_context_size = 64});
  options.logits_processors.push_back(mlxlm::forbid_strings(tokenizer, {"sorry", "cannot"}));
  options.logits_processors.push_back(std::make_shared<NoStutter>());
  std::cout << "free: " << mlxlm::generate(model, tokenizer, prompt, options) << '\n';

  const mlxlm::Grammar grammar{.kind = mlxlm::Grammar::Kind::regex, .source = "(yes|no), it is 1?[0-9] degrees"};
  options.logits_processors = {mlxlm::constrain(tokenizer, grammar)};
  std::cout << "constrained: " << mlxlm::generate(model, tokenizer, prompt, options) << '\n';
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
