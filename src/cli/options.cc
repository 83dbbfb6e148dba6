#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "cli/progress.h"
#include "cli/prompt.h"
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

template <typename T>
bool parse_whole(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

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
                                 format_text("expected {}, got '{}'", expected, printable(results.back())));
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
  return this->value(names, format_text("a whole number of at least {}", lowest), parse, help)
      .type("N")
      .shown_default(std::to_string(value));
}

OptionRef OptionGroup::real(const std::string& names, float& value, float lowest, float highest,
                            const std::string& help) {
  const auto parse = [&value, lowest, highest](const std::string& text) {
    return parse_whole(text, value) && std::isfinite(value) && value >= lowest && value <= highest;
  };
  const bool bounded = highest < std::numeric_limits<float>::max();
  const std::string expected =
      bounded ? format_text("a number from {} to {}", lowest, highest) : format_text("a number of at least {}", lowest);
  return this->value(names, expected, parse, help).type("X").shown_default(format_text("{}", value));
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
  OptionRef option = this->value(names, "a whole number from 0 to 2^64 - 1", parse, help).type("N");
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
      {"--max-kv-size", true, "a bounded KV cache is not built yet; limit --max-tokens instead"},
      {"--kv-bits", true, "a quantised KV cache is not built yet; leave the flag out"},
      {"--kv-group-size", true, "a quantised KV cache is not built yet; leave the flag out"},
      {"--quantized-kv-start", true, "a quantised KV cache is not built yet; leave the flag out"},
      {"--prompt-cache-file", true, "saved prompt caches are not built yet; give the whole prompt"},
      {"--draft-model", true, "speculative decoding is not built yet; leave the flag out (the text is the same)"},
      {"--num-draft-tokens", true, "speculative decoding is not built yet; leave the flag out (the text is the same)"},
      {"--xtc-probability", true, "XTC sampling is not built yet; use --top-p, --min-p or --top-k"},
      {"--xtc-threshold", true, "XTC sampling is not built yet; use --top-p, --min-p or --top-k"},
      {"--image", true, "images are not built yet; text models only"},
      {"--pipeline", false, "running on several machines is not built yet; leave the flag out"},
      {"--quantize-activations", false, "activations are quantised by --precision fast (the default); leave it out"},
      {"--trust-remote-code", false, "code from a model folder is never run; leave the flag out"},
  };
  return kFlags;
}

void ModelOptions::add_to(CLI::App& app, const std::string& names) {
  OptionGroup group(app, "Model");
  group.text(names, model, "Model folder in MLX format: config.json, *.safetensors, tokenizer files")
      .type("DIR")
      .required();
  group.integer("--threads,-t", threads, 0, "Threads; 0: one per core this process may use. Never changes the text");
  group.choice("--precision", precision, {"fast", "exact"},
               "fast: activations in int8 per 32 values; exact: float32 throughout, the reference");
  group.text("--isa", isa, "Kernel set (scalar, avx2, neon); default: the best of this CPU. Never changes the text")
      .type("NAME");
}

Loaded ModelOptions::load() const {
  const std::string folder = resolve_model_folder(model);
  LoadOptions options;
  options.precision = precision == "exact" ? Precision::exact : Precision::fast;
  options.threads = threads;
  options.isa = isa;
  const WaitMessage message("Loading " + folder);
  return mlxlm::load(folder, options);
}

void SamplingOptions::add_to(CLI::App& app) {
  constexpr float kNoLimit = std::numeric_limits<float>::max();
  OptionGroup group(app, "Sampling");
  group.real("--temp", sampler.temp, 0, kNoLimit, "Temperature; 0: greedy, and the filters below do not apply");
  sampler.top_p = 1;
  group.real("--top-p", sampler.top_p, 0, 1, "Keep the fewest tokens with this probability mass; 1: off");
  group.real("--min-p", sampler.min_p, 0, 1, "Drop tokens less likely than this times the likeliest; 0: off");
  group.integer("--min-tokens-to-keep", sampler.min_tokens_to_keep, 1, "--min-p leaves at least this many");
  group.integer("--top-k", sampler.top_k, 0, "Keep the K likeliest tokens; 0: off");
  group.seed("--seed", seed, "Seed of the sampler; without one it is drawn, and reported by --json");
}

std::string resolve_model_folder(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored)) return model;
  if (std::filesystem::exists(model, ignored)) {
    throw_error(ErrorKind::invalid_value,
                "{}: expected a model folder, got a file; a GGUF file becomes a folder with "
                "'mlxlm convert --gguf FILE --mlx-path DIR'",
                model);
  }
  const size_t slash = model.find('/');
  const bool hub_id = slash != std::string::npos && slash > 0 && slash + 1 < model.size() && model[0] != '.' &&
                      model[0] != '~' && model.find('/', slash + 1) == std::string::npos;
  if (hub_id) {
    throw_error(ErrorKind::not_found,
                "{0}: no such folder. If this is a Hugging Face id: downloads are not built yet; fetch the folder "
                "first (for example 'huggingface-cli download {0} --local-dir DIR') and give --model DIR",
                model);
  }
  throw_error(ErrorKind::not_found, "'{}': no such model folder; expected a folder with config.json and *.safetensors",
              model);
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
