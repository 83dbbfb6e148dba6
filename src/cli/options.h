// Options shared by the commands: checked values, and the groups that several commands have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mlxlm/mlxlm.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mlxlm::cli {

// Values. A wrong one throws CLI::ValidationError, which says what was expected and what was got. Where an option is
// given twice the last one counts, so that scripts can append overrides.

CLI::Option* add_text(CLI::App& app, const std::string& names, std::string& value, const std::string& help);
CLI::Option* add_text(CLI::App& app, const std::string& names, std::optional<std::string>& value,
                      const std::string& help);
CLI::Option* add_int(CLI::App& app, const std::string& names, int& value, int lowest, const std::string& help);
CLI::Option* add_real(CLI::App& app, const std::string& names, float& value, float lowest, float highest,
                      const std::string& help);
CLI::Option* add_bool(CLI::App& app, const std::string& names, bool& value, const std::string& help);
CLI::Option* add_seed(CLI::App& app, const std::string& names, std::optional<uint64_t>& value, const std::string& help);
/// Repeatable; each use takes up to `max_per_use` values.
CLI::Option* add_list(CLI::App& app, const std::string& names, std::vector<std::string>& values, int max_per_use,
                      const std::string& help);

/// A flag of mlx_lm that is known here but not supported: using it is an error that says why.
struct RefusedFlag {
  const char* names;
  bool takes_value;
  const char* sentence;  ///< follows "--flag: "
};
void add_refused(CLI::App& app, std::span<const RefusedFlag> flags);
/// The refused flags that generate and chat share.
std::span<const RefusedFlag> refused_generation_flags();

/// --model, --threads, --precision, --isa.
struct ModelOptions {
  std::string model;
  int threads = 0;
  std::string precision = "fast";
  std::string isa;

  /// `names` is "--model" or "--model,-m"; required unless the command takes the folder another way.
  void add_to(CLI::App& app, const std::string& names);
  void add_compute_to(CLI::App& app);
  Loaded load() const;
};

/// --temp, --top-p, --min-p, --min-tokens-to-keep, --top-k, --seed.
struct SamplingOptions {
  SamplerOptions sampler{};
  std::optional<uint64_t> seed{};

  void add_to(CLI::App& app);
};

/// The folder itself if it exists; otherwise throws Error(not_found), with advice for names that look like Hub ids.
std::string resolve_model_folder(const std::string& model);

/// Each text (a token id in digits, or a token of the vocabulary) as an id. Throws Error(invalid_value) naming it.
std::vector<int32_t> resolve_eos_tokens(const Tokenizer& tokenizer, std::span<const std::string> tokens);

}  // namespace mlxlm::cli
