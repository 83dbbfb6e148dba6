#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "cli/download_bar.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "hub/names.h"
#include "text/utf8.h"

namespace mlxlm::cli {
namespace {

/// The option's name as the messages show it: the first long one of "--max-tokens,-m".
std::string display_name(const std::string& names) {
  const size_t start = names.find("--");
  if (start == std::string::npos) return names.substr(0, names.find(','));
  return names.substr(start, names.find(',', start) - start);
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

bool parse_real(const std::string& text, float lowest, float highest, float& value) {
  return parse_whole(text, value) && std::isfinite(value) && value >= lowest && value <= highest;
}

}  // namespace

bool parse_bytes(std::string_view text, int64_t& value) {
  static constexpr std::pair<std::string_view, int64_t> kUnits[] = {{"", 1},
                                                                    {"B", 1},
                                                                    {"KB", 1000},
                                                                    {"MB", 1000000},
                                                                    {"GB", 1000000000},
                                                                    {"KiB", 1LL << 10},
                                                                    {"MiB", 1LL << 20},
                                                                    {"GiB", 1LL << 30}};
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t number = 0;
  if (!parse_whole(text.substr(0, digits), number)) return false;
  for (const auto& [unit, factor] : kUnits) {
    if (text.substr(digits) == unit) return !__builtin_mul_overflow(number, factor, &value);
  }
  return false;
}

std::string whole_expected(int lowest) { return format_text("a whole number of at least {}", lowest); }

std::string real_expected(float lowest, float highest) {
  constexpr float kNoLimit = std::numeric_limits<float>::max();
  if (highest < kNoLimit) return format_text("a number from {} to {}", lowest, highest);
  return lowest > -kNoLimit ? format_text("a number of at least {}", lowest) : "a number";
}

OptionRef OptionRef::type(const std::string& name) {
  option_->type_name(name);
  return *this;
}

OptionRef OptionRef::shown_default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

OptionRef OptionRef::required() {
  option_->required();
  return *this;
}

OptionRef OptionRef::excludes(OptionRef other) {
  option_->excludes(other.option_);
  return *this;
}

OptionRef OptionGroup::value(const std::string& names, const std::string& expected,
                             std::function<bool(const std::string& text)> parse, const std::string& help) {
  const auto callback = [names, expected, parse = std::move(parse)](const CLI::results_t& results) {
    if (!parse(results.back())) {
      throw CLI::ValidationError(display_name(names),
                                 format_text("expected {}, got '{}'{}", expected, printable(results.back()),
                                             is_folder(results.back()) ? "; a model folder goes with --model" : ""));
    }
    return true;
  };
  return OptionRef(app_.add_option(names, CLI::callback_t(callback), help)->take_last()->group(title_));
}

OptionRef OptionGroup::text(const std::string& names, std::string& value, const std::string& help) {
  const auto parse = [&value](const std::string& given) {
    value = given;
    return !text::find_invalid_utf8(given);
  };
  return this->value(names, "valid UTF-8", parse, help).type("TEXT");
}

OptionRef OptionGroup::text(const std::string& names, std::optional<std::string>& value, const std::string& help) {
  const auto parse = [&value](const std::string& given) {
    value = given;
    return !text::find_invalid_utf8(given);
  };
  return this->value(names, "valid UTF-8", parse, help).type("TEXT");
}

OptionRef OptionGroup::integer(const std::string& names, int& value, int lowest, const std::string& help) {
  const auto parse = [&value, lowest](const std::string& text) { return parse_whole(text, value) && value >= lowest; };
  return this->value(names, whole_expected(lowest), parse, help).type("N").shown_default(std::to_string(value));
}

OptionRef OptionGroup::integer(const std::string& names, std::optional<int>& value, int lowest,
                               const std::string& help) {
  const auto parse = [&value, lowest](const std::string& text) {
    return parse_whole(text, value.emplace()) && *value >= lowest;
  };
  return this->value(names, whole_expected(lowest), parse, help).type("N");
}

OptionRef OptionGroup::real(const std::string& names, float& value, float lowest, float highest,
                            const std::string& help) {
  const auto parse = [&value, lowest, highest](const std::string& text) {
    return parse_real(text, lowest, highest, value);
  };
  return this->value(names, real_expected(lowest, highest), parse, help)
      .type("X")
      .shown_default(format_text("{}", value));
}

OptionRef OptionGroup::real(const std::string& names, std::optional<float>& value, float lowest, float highest,
                            const std::string& help) {
  const auto parse = [&value, lowest, highest](const std::string& text) {
    return parse_real(text, lowest, highest, value.emplace());
  };
  return this->value(names, real_expected(lowest, highest), parse, help).type("X");
}

OptionRef OptionGroup::bytes(const std::string& names, int64_t& value, const std::string& help) {
  const auto parse = [&value](const std::string& text) { return parse_bytes(text, value); };
  return this->value(names, "bytes, or a size like 2GB or 500MiB", parse, help)
      .type("SIZE")
      .shown_default(std::to_string(value));
}

OptionRef OptionGroup::parsed(const std::string& names, const std::string& help,
                              std::function<void(const std::string& name, const std::string& text)> parse) {
  const auto convert = [name = display_name(names), parse = std::move(parse)](const std::string& text) {
    if (text::find_invalid_utf8(text)) return false;
    try {
      parse(name, text);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_value) throw;
      throw CLI::ValidationError(error.what());
    }
    return true;
  };
  return value(names, "valid UTF-8", convert, help).type("TEXT");
}

OptionRef OptionGroup::boolean(const std::string& names, bool& value, const std::string& help) {
  const auto parse = [&value](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    value = text == "true" || text == "t";
    return value || text == "false" || text == "f";
  };
  return this->value(names, "true or false", parse, help).type("true|false").shown_default(value ? "true" : "false");
}

OptionRef OptionGroup::flag(const std::string& names, bool& value, const std::string& help) {
  return OptionRef(app_.add_flag(names, value, help)->group(title_)->disable_flag_override());
}

OptionRef OptionGroup::choice(const std::string& names, std::string& value, const std::vector<std::string>& choices,
                              const std::string& help) {
  const auto parse = [&value, choices](const std::string& text) {
    value = text;
    return std::find(choices.begin(), choices.end(), text) != choices.end();
  };
  return this->value(names, joined(choices, " or "), parse, help).type(joined(choices, "|")).shown_default(value);
}

OptionRef OptionGroup::seed(const std::string& names, std::optional<uint64_t>& value, const std::string& help) {
  const auto parse = [&value](const std::string& text) { return parse_whole(text, value.emplace()); };
  OptionRef option = this->value(names, kSeedExpected, parse, help).type("N");
  return value ? option.shown_default(std::to_string(*value)) : option;
}

OptionRef OptionGroup::list(const std::string& names, std::vector<std::string>& values, int max_per_use,
                            const std::string& help) {
  const auto parse = [&values, names](const CLI::results_t& results) {
    values = results;
    for (const std::string& given : values) {
      if (text::find_invalid_utf8(given)) throw CLI::ValidationError(display_name(names), "expected valid UTF-8");
    }
    return true;
  };
  CLI::Option* option = app_.add_option(names, CLI::callback_t(parse), help)->type_name("TEXT")->group(title_);
  // Not allow_extra_args: it would read "[A,B]" as a list of its own.
  return OptionRef(option->expected(1, max_per_use)->take_all()->allow_extra_args(false));
}

void OptionGroup::unused_flag(const std::string& names) { app_.add_flag(names)->group(""); }

void add_refused(CLI::App& app, std::span<const RefusedFlag> flags) {
  for (const RefusedFlag& flag : flags) {
    const auto refuse = [flag](const CLI::results_t&) -> bool {
      throw CLI::ValidationError(display_name(flag.names), flag.sentence);
    };
    CLI::Option* option = app.add_option(flag.names, CLI::callback_t(refuse), "")->group("");
    if (flag.takes_value) {
      option->expected(1)->take_last();
    } else {
      option->expected(0)->take_last();
    }
  }
}

std::span<const RefusedFlag> refused_generation_flags() {
  static constexpr RefusedFlag kFlags[] = {
      {"--adapter-path", true, "LoRA adapters are not built yet; fuse the adapter into the model first"},
      {"--image", true, "images are not built yet; text models only"},
      {"--pipeline", false, "running on several machines is not built yet; leave the flag out"},
      {"--quantize-activations", false, "activations are quantised by --precision fast (the default); leave it out"},
      {"--trust-remote-code", false, "code from a model folder is never run; leave the flag out"},
  };
  return kFlags;
}

void ModelOptions::add_to(CLI::App& app, const std::string& names, bool required) {
  OptionGroup group(app, "Model");
  OptionRef folder =
      group.text(names, model, "Model folder in MLX format, or ORG/NAME of the Hugging Face Hub, downloaded once")
          .type("DIR");
  if (required) folder.required();
  group.text("--revision", revision, "Branch, tag or commit of ORG/NAME; default: main").type("NAME");
  group.integer("--threads,-t", threads, 0, "Threads; 0: one per core this process may use. Never changes the text");
  group.choice("--precision", precision, {"fast", "exact"},
               "fast: activations in int8 per 32 values; exact: float32 throughout, the reference");
  group
      .text("--isa", isa,
            "Kernel set (scalar, avx2, neon, neon_dot); default: the best of this CPU. Never changes the text")
      .type("NAME");
}

Loaded ModelOptions::load(std::stop_token cancel) const {
  const std::string folder = resolve_model_folder(model, revision, std::move(cancel));
  LoadOptions options;
  options.precision = precision == "exact" ? Precision::exact : Precision::fast;
  options.threads = threads;
  options.isa = isa;
  const WaitMessage message("Loading " + folder);
  return mlxlm::load(folder, options);
}

void add_draft_model(CLI::App& app, std::string& folder) {
  OptionGroup(app, kSpeculationTitle)
      .text("--draft-model", folder, "A smaller model with the same vocabulary that guesses tokens ahead")
      .type("DIR");
}

std::optional<Model> load_draft_model(const ModelOptions& model, const std::string& folder, std::stop_token cancel) {
  if (folder.empty()) return std::nullopt;
  ModelOptions draft = model;
  draft.model = folder;
  draft.revision.clear();
  return draft.load(std::move(cancel)).model;
}

std::string resolve_model_folder(const std::string& model, const std::string& revision, std::stop_token cancel) {
  std::error_code ignored;
  if (is_folder(model)) return model;
  if (std::filesystem::exists(model, ignored)) {
    throw_error(ErrorKind::invalid_value,
                "{}: expected a model folder, got a file; a GGUF file becomes a folder with "
                "'mlxlm convert --gguf FILE --mlx-path DIR'",
                model);
  }
  if (!hub::is_repo_id(model)) {
    throw_error(
        ErrorKind::not_found,
        "'{}': no such model folder, and not the name of a Hugging Face repository (ORG/NAME); expected a folder "
        "with config.json and *.safetensors",
        printable(model));
  }
  DownloadBar bar;
  HubOptions options;
  options.revision = revision;
  options.progress = [&bar](const DownloadProgress& progress) { bar.update(progress); };
  options.cancel = std::move(cancel);
  return snapshot_download(model, options);
}

std::vector<int32_t> resolve_eos_tokens(const Tokenizer& tokenizer, std::span<const std::string> tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    int32_t id = -1;
    if (parse_whole(token, id)) {
      if (id < 0 || id >= tokenizer.vocab_size()) {
        throw_invalid("--extra-eos-token: expected an id from 0 to {}, got {}", tokenizer.vocab_size() - 1, id);
      }
    } else if (const std::optional<int32_t> found = tokenizer.token_to_id(token)) {
      id = *found;
    } else {
      throw_invalid(
          "--extra-eos-token: '{}' is not a token of this model's vocabulary; give one token's exact text "
          "or its id",
          token);
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace mlxlm::cli
