// Options shared by the commands: checked values, and the groups that several commands have in common.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
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
  OptionRef integer(const std::string& names, std::optional<int>& value, int lowest, const std::string& help);
  OptionRef real(const std::string& names, float& value, float lowest, float highest, const std::string& help);
  OptionRef real(const std::string& names, std::optional<float>& value, float lowest, float highest,
                 const std::string& help);
  OptionRef bytes(const std::string& names, int64_t& value, const std::string& help);  ///< takes 2GB, 500MiB, 4096
  OptionRef boolean(const std::string& names, bool& value, const std::string& help);   ///< takes true or false
  OptionRef flag(const std::string& names, bool& value, const std::string& help);      ///< takes no value
  OptionRef choice(const std::string& names, std::string& value, const std::vector<std::string>& choices,
                   const std::string& help);
  OptionRef seed(const std::string& names, std::optional<uint64_t>& value, const std::string& help);
  /// `parse` takes the option's name for its messages and the text; an Error(invalid_value) it throws is a wrong
  /// command line.
  OptionRef parsed(const std::string& names, const std::string& help,
                   std::function<void(const std::string& name, const std::string& text)> parse);
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

/// What the messages say was expected.
/// "5GB" (10^9), "500MiB" (2^20) or bytes; false for anything else.
bool parse_bytes(std::string_view text, int64_t& value);
std::string whole_expected(int lowest);
std::string real_expected(float lowest, float highest);
inline constexpr const char* kSeedExpected = "a whole number from 0 to 2^64 - 1";

/// Decimal digits, with a minus sign for signed types; the whole text must be the number.
template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

/// A flag of mlx_lm that is known here but not supported: using it is an error that says why.
struct RefusedFlag {
  const char* names;
  bool takes_value;
  const char* sentence;  ///< follows "--flag: "
};
void add_refused(CLI::App& app, std::span<const RefusedFlag> flags);
/// The refused flags that the commands share which generate text.
std::span<const RefusedFlag> refused_generation_flags();

/// --model, --revision, --threads, --precision, --isa.
struct ModelOptions {
  std::string model;
  std::string revision;
  int threads = 0;
  std::string precision = "fast";
  std::string isa;

  /// `names` is "--model", "--model,-m" or "DIR,--model,-m".
  void add_to(CLI::App& app, const std::string& names, bool required = true);
  /// Downloads what is not there yet; `cancel` ends that, with Error(cancelled).
  Loaded load(std::stop_token cancel = {}) const;
};

/// --draft-model, a folder; empty: none.
void add_draft_model(CLI::App& app, std::string& folder);
/// The draft model, loaded as the model is; none where `folder` is empty. `cancel` ends a download, as in load().
std::optional<Model> load_draft_model(const ModelOptions& model, const std::string& folder,
                                      std::stop_token cancel = {});
inline constexpr const char* kSpeculationTitle = "Speculation (never changes the text)";

/// The folder itself if it exists, else that of the Hub repository of this name, downloaded under a progress bar.
/// Throws Error.
std::string resolve_model_folder(const std::string& model, const std::string& revision = "",
                                 std::stop_token cancel = {});

/// Each text (a token id in digits, or a token of the vocabulary) as an id. Throws Error(invalid_value) naming it.
std::vector<int32_t> resolve_eos_tokens(const Tokenizer& tokenizer, std::span<const std::string> tokens);

}  // namespace mlxlm::cli
