// A built-in sampler, the probabilities it saw, and a sampler of one's own: sampling MODEL_FOLDER
#include <mlxlm/mlxlm.h>

#include <algorithm>
#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 2) throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: sampling MODEL_FOLDER");
  auto [model, tokenizer] = mlxlm::load(argv[1]);
  const auto prompt = tokenizer.apply_chat_template({{"user", "Name a colour of the sea."}});

  mlxlm::GenerateOptions options{.max_tokens = 24, .seed = 7, .top_logprobs = 2};
  options.sampler = {.temp = 0.8f, .top_p = 0.95f, .min_p = 0.05f};
  for (const auto& r : mlxlm::stream_generate(model, tokenizer, prompt, options)) {
    std::cout << "token " << r.token << ", log-probability " << r.logprob << "; most likely:";
    for (const auto& [id, logprob] : r.top_logprobs) std::cout << ' ' << id << " (" << logprob << ')';
    std::cout << '\n';
  }

  // Any rule will do. What it draws comes from the context, so that one seed gives one text in every batch.
  options.sampler_function = [](std::span<const float> logprobs, const mlxlm::SamplingContext& context) {
    const auto best = std::max_element(logprobs.begin(), logprobs.end());
    auto choice = best;
    for (auto it = logprobs.begin(); it != logprobs.end(); ++it) {
      if (it != best && (choice == best || *it > *choice)) choice = it;
    }
    if (context.uniform() < 0.9) choice = best;  // the second most likely token at one position in ten
    return static_cast<int32_t>(choice - logprobs.begin());
  };
  const std::string first = mlxlm::generate(model, tokenizer, prompt, options);
  std::cout << "own sampler: " << first << '\n';
  if (mlxlm::generate(model, tokenizer, prompt, options) != first) throw std::runtime_error("one seed, two texts");
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
