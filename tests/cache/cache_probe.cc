// Test tool: prompt caches driven by commands on standard input, one per line; answers go to standard output.
// cache_probe DIR fast|exact
//   new MAX_KV_SIZE KEEP KV_BITS KV_GROUP_SIZE QUANTIZED_KV_START
//   load FILE | save FILE [KEY=VALUE]...
//   append ID...           ids that are still to be computed
//   trim N                 prints how many were forgotten
//   size                   prints the number of tokens held and their known ids
//   metadata FILE          prints KEY=VALUE lines and an empty one
//   greedy N               computes what is pending, then N likely tokens one by one; prints them, and in a second line
//                          the logits of the last
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/prompt_cache.h"
#include "mlxlm/mlxlm.h"

namespace {

using Ids = std::vector<int32_t>;

class Probe {
 public:
  explicit Probe(mlxlm::Model model) : model_(std::move(model)) {}

  void run(const std::string& line) {
    std::istringstream in(line);
    std::string command, word;
    in >> command;
    if (command == "new") {
      mlxlm::PromptCacheOptions o;
      in >> o.max_kv_size >> o.keep >> o.kv_bits >> o.kv_group_size >> o.quantized_kv_start;
      cache_.emplace(model_, o);
    } else if (command == "load") {
      in >> word;
      cache_.emplace(mlxlm::load_prompt_cache(model_, word).cache);
    } else if (command == "save") {
      std::string path;
      std::map<std::string, std::string> metadata;
      in >> path;
      while (in >> word) metadata[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
      cache().save(path, metadata);
    } else if (command == "append") {
      auto& tokens = cache().state().tokens;
      for (int32_t id = 0; in >> id;) tokens.push_back(id);
    } else if (command == "trim") {
      int64_t n = 0;
      in >> n;
      std::cout << cache().trim(n) << std::endl;
    } else if (command == "size") {
      std::cout << cache().size();
      for (const int32_t id : cache().tokens()) std::cout << ' ' << id;
      std::cout << std::endl;
    } else if (command == "metadata") {
      in >> word;
      for (const auto& [key, value] : mlxlm::read_prompt_cache_metadata(word)) std::cout << key << '=' << value << '\n';
      std::cout << std::endl;
    } else if (command == "greedy") {
      int n = 0;
      in >> n;
      greedy(n);
    } else {
      throw std::invalid_argument("unknown command " + command);
    }
  }

 private:
  mlxlm::PromptCache& cache() { return cache_.value(); }

  void greedy(int n) {
    mlxlm::PromptCache::State& state = cache().state();
    std::vector<float> logits;
    for (int i = 0; i < n; ++i) {
      const mlxlm::nn::Span span{&state.kv, state.pending(), mlxlm::nn::Rows::last};
      model_.impl().executor().forward({&span, 1}, logits);
      state.tokens.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      std::cout << state.tokens.back() << ' ';
    }
    std::cout << '\n';
    std::cout.precision(9);
    for (const float x : logits) std::cout << x << ' ';
    std::cout << std::endl;
  }

  mlxlm::Model model_;
  std::optional<mlxlm::PromptCache> cache_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: cache_probe DIR fast|exact < commands\n";
    return 2;
  }
  try {
    const bool exact = std::string(argv[2]) == "exact";
    const auto precision = exact ? mlxlm::Precision::exact : mlxlm::Precision::fast;
    Probe probe(mlxlm::load(argv[1], {.precision = precision, .threads = 1}).model);
    for (std::string line; std::getline(std::cin, line);) probe.run(line);
  } catch (const std::exception& error) {
    std::cerr << "cache_probe: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
