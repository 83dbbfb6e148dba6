#include "cli/cache_file.h"

#include <filesystem>

#include "base/error.h"

namespace mlxlm::cli {
namespace {

/// The same text, or two names of one folder.
bool same_model(const std::string& a, const std::string& b) {
  std::error_code failed;
  return a == b || (std::filesystem::equivalent(a, b, failed) && !failed);
}

void check_option(const std::string& path, const char* option, const std::optional<int>& given, int64_t of_file) {
  if (!given || *given == of_file) return;
  throw_invalid("{}: {} is {} in this file, got {}; leave the option out, or make a file with it", path, option,
                of_file == 0 ? "not set" : std::to_string(of_file), *given);
}

}  // namespace

void apply_cache_metadata(const std::string& path, std::string& model, std::vector<std::string>& extra_eos_tokens) {
  const std::map<std::string, std::string> metadata = read_prompt_cache_metadata(path);
  if (const auto writer = metadata.find("model"); writer != metadata.end()) {
    if (model.empty()) {
      model = writer->second;
    } else if (!same_model(model, writer->second)) {
      throw_invalid("{}: it was made with the model {}, got --model {}; leave --model out, or make a file for it", path,
                    writer->second, model);
    }
  } else if (model.empty()) {
    throw_invalid("{}: the file does not name its model; give --model DIR", path);
  }
  const auto config = metadata.find("tokenizer_config");
  if (config == metadata.end()) return;
  const io::Json json = io::parse_json(config->second, path + ": tokenizer_config");
  if (!json.is_object()) throw_invalid("{}: tokenizer_config: expected a JSON object", path);
  const auto eos = json.find("eos_token");
  if (eos != json.end() && eos->is_string()) extra_eos_tokens.push_back(eos->get<std::string>());
}

PromptCache load_cache_file(const std::string& path, const Model& model, const GenerationSettings& settings) {
  PromptCache cache = load_prompt_cache(model, path).cache;
  const PromptCacheOptions& held = cache.options();
  check_option(path, "--max-kv-size", settings.max_kv_size, held.max_kv_size);
  check_option(path, "--kv-bits", settings.kv_bits, held.kv_bits);
  check_option(path, "--kv-group-size", settings.kv_group_size, held.kv_bits == 0 ? 0 : held.kv_group_size);
  check_option(path, "--quantized-kv-start", settings.quantized_kv_start,
               held.kv_bits == 0 ? 0 : held.quantized_kv_start);
  return cache;
}

std::map<std::string, std::string> cache_metadata(const std::string& model, const std::string& eos_token) {
  io::Json config = {{"trust_remote_code", false}};
  if (!eos_token.empty()) config["eos_token"] = eos_token;
  return {{"model", model}, {"tokenizer_config", config.dump()}};
}

}  // namespace mlxlm::cli
