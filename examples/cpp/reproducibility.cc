// One request run in many ways must give one answer: reproducibility MODEL_FOLDER
#include <mlxlm/mlxlm.h>

#include <exception>
#include <iostream>

using Answer = std::vector<std::pair<int32_t, float>>;  // token ids with their log-probabilities

Answer run(const mlxlm::Loaded& loaded, const std::vector<int32_t>& prompt, const mlxlm::GenerateOptions& options) {
  Answer answer;
  for (const auto& r : mlxlm::stream_generate(loaded.model, loaded.tokenizer, prompt, options)) {
    answer.emplace_back(r.token, r.logprob);
  }
  return answer;
}

int main(int argc, char** argv) try {
  if (argc != 2) throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: reproducibility MODEL_FOLDER");
  const mlxlm::Loaded plain = mlxlm::load(argv[1], {.threads = 2});
  const mlxlm::Loaded other = mlxlm::load(argv[1], {.threads = 1, .isa = "scalar"});
  auto prompt = plain.tokenizer.apply_chat_template({{"user", "Tell me of the sea, and of the sea at night."}});
  const mlxlm::GenerateOptions options{.max_tokens = 40, .sampler = {.temp = 0.9f}, .seed = 1, .reuse_prefix = false};
  const Answer expected = run(plain, prompt, options);
  const auto expect = [&](const char* what, const Answer& got) {
    std::cout << what << ": " << (got == expected ? "the same" : "DIFFERENT") << std::endl;
    if (got != expected) throw std::runtime_error("expected the same tokens and log-probabilities");
  };

  auto changed = options;
  expect("one thread, plain C++ kernels", run(other, prompt, options));
  changed.prefill_step_size = 7;
  expect("the prompt in pieces of 7 tokens", run(plain, prompt, changed));
  changed.speculation.prompt_lookup = true;
  expect("guessing ahead", run(plain, prompt, changed));
  changed.reuse_prefix = true;
  run(plain, prompt, changed);
  expect("a prefix known from an earlier request", run(plain, prompt, changed));

  mlxlm::BatchGenerator batch(plain.model, plain.tokenizer);
  for (int i = 1; i < 5; ++i) batch.insert(std::vector(prompt.begin(), prompt.end() - i), {.max_tokens = 10 * i});
  const int64_t uid = batch.insert(prompt, options);
  Answer in_batch;
  while (!batch.idle()) {
    for (const auto& r : batch.next().responses) {
      if (r.uid == uid) in_batch.emplace_back(r.response.token, r.response.logprob);
    }
  }
  expect("four neighbours in a batch", in_batch);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
