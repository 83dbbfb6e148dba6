// Options shared by the commands: checked values, and the groups that several commands have in common.
#pragma once

#include <cstdint>
#include <functional>
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

/// A declared option, for what only some need.
class OptionRef {
 public:
  explicit OptionRef(CLI::Option* option) : option_(option) {}
  OptionRef type(const std::string& name);           ///< what stands for the value in the help
  OptionRef shown_default(const std::string& text);  ///< in the help
  OptionRef required();
  OptionRef excludes(OptionRef other);  ///< both together are an error

 private:
  CLI::Option* option_;
};

/// Options under one heading of the help. A wrong value is an error that says what was expected and what was got. Where
/// an option is given twice the last one counts, so that scripts can append overrides. `names` is "--max-tokens,-m".
class OptionGroup {
 public:
  OptionGroup(CLI::App& app, std::string title) : app_(app), title_(std::move(title)) {}

  OptionRef text(const std::string& names, std::string& value, const std::string& help);
  OptionRef text(const std::string& names, std::optional<std::string>& value, const std::string& help);
  OptionRef integer(const std::string& names, int& value, int lowest, const std::string& help);
  OptionRef real(const std::string& names, float& value, float lowest, float highest, const std::string& help);
  OptionRef boolean(const std::string& names, bool& value, const std::string& help);  ///< takes true or false
  OptionRef flag(const std::string& names, bool& value, const std::string& help);     ///< takes no value
  OptionRef choice(const std::string& names, std::string& value, const std::vector<std::string>& choices,
                   const std::string& help);
  OptionRef seed(const std::string& names, std::optional<uint64_t>& value, const std::string& help);
  /// Repeatable; each use takes up to `max_per_use` values, as they are.
  OptionRef list(const std::string& names, std::vector<std::string>& values, int max_per_use, const std::string& help);
  /// Accepted without effect, and not in the help.
  void unused_flag(const std::string& names);

 private:
  /// An option of one value; `parse` returns false for a wrong one.
  OptionRef value(const std::string& names, const std::string& expected,
                  std::function<bool(const std::string& text)> parse, const std::string& help);

  CLI::App& app_;
  std::string title_;
};

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

  /// `names` is "--model", "--model,-m" or "DIR,--model,-m".
  void add_to(CLI::App& app, const std::string& names);
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
