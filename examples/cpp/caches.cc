// Reads a long text once and asks about it twice, in this process and in the next: caches MODEL_FOLDER CACHE_FILE
#include <mlxlm/mlxlm.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 3) throw mlxlm::Error(mlxlm::ErrorKind::invalid_value, "usage: caches MODEL_FOLDER CACHE_FILE");
  auto [model, tokenizer] = mlxlm::load(argv[1]);
  std::string text = "The log of the lighthouse.";
  for (int day = 1; day <= 30; ++day) text += " Day " + std::to_string(day) + ": wind from the west.";

  mlxlm::PromptCache cache(model);
  mlxlm::generate(model, tokenizer, text, {.max_tokens = 0, .prompt_cache = &cache});  // reads, says nothing
  cache.save(argv[2], {{"title", "lighthouse"}});
  std::cout << cache.size() << " tokens in " << cache.bytes() << " bytes, saved to " << argv[2] << '\n';

  auto loaded = mlxlm::load_prompt_cache(model, argv[2]);
  for (const std::string question : {" What was day 3 like?", " Who wrote it?"}) {
    mlxlm::PromptCache branch = loaded.cache.fork();  // shares the memory; the original stays as it is
    const auto ids = tokenizer.encode(question, false);
    std::cout << question;
    int64_t cached = 0;
    for (const auto& r : mlxlm::stream_generate(model, tokenizer, ids, {.max_tokens = 20, .prompt_cache = &branch})) {
      std::cout << r.text << std::flush;
      cached = r.cached_tokens;
    }
    std::cout << " [" << cached << " tokens were in the cache]\n";
    std::vector<int32_t> whole = loaded.cache.tokens();
    whole.insert(whole.end(), ids.begin(), ids.end());
    mlxlm::PromptCache cold(model);
    mlxlm::generate(model, tokenizer, whole, {.max_tokens = 20, .prompt_cache = &cold, .reuse_prefix = false});
    if (cold.tokens() != branch.tokens()) throw std::runtime_error("the cache changed the answer");
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
