#include "cli/app.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/suggest.h"
#include "mlxlm/version.h"

namespace mlxlm::cli {
namespace {

constexpr CommandEntry kCommands[] = {
    {"generate", "Complete a prompt",
     "Examples:\n"
     "  mlxlm generate --model ./SmolLM2-135M-Instruct-4bit --prompt 'Why is the sky blue?'\n"
     "  cat notes.txt | mlxlm generate --model DIR --prompt - --system-prompt 'Summarise.' --verbose false\n"
     "  mlxlm generate --model DIR --temp 0.7 --top-p 0.9 --seed 1 --stop END --max-tokens -1\n"
     "  mlxlm generate --model DIR --prompt 'Once upon' --ignore-chat-template --json --top-logprobs 5\n"
     "  mlxlm generate --model DIR --repetition-penalty 1.1 --logit-bias '{\"5\": -100}' --min-tokens 20\n"
     "  mlxlm generate --model DIR --prompt 'Name a city.' --json-schema '{\"type\": \"object\"}'\n"
     "  mlxlm generate --model DIR --prompt - --max-kv-size 4096 --kv-bits 8 --quantized-kv-start 0\n"
     "  mlxlm generate --model DIR --draft-model SMALLER_DIR --num-draft-tokens 4\n"
     "  mlxlm generate --prompt-cache-file book.safetensors --prompt 'Who is the thief?'\n\n"
     "One folder, precision, prompt, settings and seed give the same text whatever the thread count or CPU.\n"
     "Ctrl-C stops cleanly and prints the statistics so far; a second one ends at once.",
     make_generate_command},
    {"chat", "Talk with a model",
     "Examples:\n"
     "  mlxlm chat --model ./SmolLM2-135M-Instruct-4bit\n"
     "  mlxlm chat --model DIR --system-prompt 'Answer in French.' --temp 0.7 --seed 3\n"
     "  mlxlm chat --model DIR --max-kv-size 8192 --prompt-lookup\n\n"
     "In the chat: /help, /reset (new conversation), /exit. Ctrl-C stops an answer; Ctrl-D leaves.\n"
     "The keys and values of the conversation are kept, so each turn computes only what is new.",
     make_chat_command},
    {"batch", "Answer many requests from a file",
     "Examples:\n"
     "  mlxlm batch --model DIR --input requests.jsonl --output answers.jsonl\n"
     "  mlxlm batch --model DIR --input requests.jsonl --output answers.jsonl --resume\n"
     "  make-requests | mlxlm batch --model DIR --input - --batch-size 8 --kv-bytes 2GB > answers.jsonl\n\n"
     "A request is a JSON object on one line: an id if you like; prompt, messages or prompt_ids; and any setting\n"
     "above by its option's name with underscores, which counts instead of the option:\n"
     "  {\"id\": \"a\", \"prompt\": \"Why is the sky blue?\", \"max_tokens\": 50, \"temp\": 0.7, \"seed\": 1}\n"
     "  {\"id\": \"b\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stop\": [\"END\"]}\n"
     "An answer has id, index and the keys of 'generate --json', and the tokens that generate gives alone. A request\n"
     "that is wrong gets an answer with error, line and field, and the others go on; the exit code is then 1.\n"
     "Ctrl-C leaves a file that --resume goes on with.",
     make_batch_command},
    {"cache-prompt", "Compute a prompt once and keep it in a file",
     "Examples:\n"
     "  cat book.txt | mlxlm cache-prompt --model DIR --prompt - --prompt-cache-file book.safetensors\n"
     "  mlxlm generate --prompt-cache-file book.safetensors --prompt 'Who is the thief?'\n"
     "  mlxlm cache-prompt --model DIR --prompt 'You know:' --prompt-cache-file f.safetensors --kv-bits 8\n\n"
     "The file has mlx-lm's format: mlx_lm.generate reads it, and generate reads those of mlx_lm.cache_prompt.",
     make_cache_prompt_command},
    {"info", "Describe a model and what this machine can do with it",
     "Examples:\n"
     "  mlxlm info ./SmolLM2-135M-Instruct-4bit\n"
     "  mlxlm info DIR --context 4096,32768 --json\n\n"
     "The ceiling is the measured read bandwidth divided by the bytes one decoded token reads: no CPU program\n"
     "can decode faster from memory on this machine.",
     make_info_command},
    {"convert", "Make a model folder: quantise a Hugging Face one, or turn a GGUF file into one",
     "Examples:\n"
     "  mlxlm convert --hf-path ./SmolLM2-135M-Instruct --mlx-path ./model-4bit -q --q-bits 4\n"
     "  mlxlm convert --hf-path DIR --mlx-path ./model-mixed -q --quant-predicate mixed_4_6\n"
     "  mlxlm convert --hf-path ./model-4bit --mlx-path ./model-bf16 --dequantize\n"
     "  mlxlm convert --gguf model-Q4_0.gguf --mlx-path ./model-4bit\n\n"
     "Weights are quantised as MLX does it, bit for bit; those of a GGUF file keep their exact values. The new folder\n"
     "is complete: config.json, *.safetensors, tokenizer files; it must not exist before.",
     make_convert_command},
    {"bench", "Measure prefill and decode speed beside the limits of the machine",
     "Examples:\n"
     "  mlxlm bench -m ./SmolLM2-135M-Instruct-4bit\n"
     "  mlxlm bench -m DIR -p 2048 -g 64 -t 8 -n 5 --json\n"
     "  mlxlm bench -m DIR -b 8 -d 4096 -g 64\n\n"
     "Prompts are random ids and the end-of-text token is ignored. Figures are medians of the repeats. The share\n"
     "of the limit compares with the read bandwidth (decode) and the multiply-add rate (prefill) measured in turn\n"
     "with the runs, so both see the same machine.",
     make_bench_command},
};

std::string program_help() {
  std::string text =
      "mlxlm: run language models in MLX format on any CPU\n\nUsage: mlxlm COMMAND [OPTIONS]\n\nCommands:\n";
  for (const CommandEntry& entry : kCommands) text += format_text("  {:12} {}\n", entry.name, entry.summary);
  text +=
      "\nOptions:\n  -h,--help  Show this help; 'mlxlm COMMAND --help' shows a command's options\n"
      "  --version  Show the version\n\n"
      "Examples:\n  mlxlm generate --model ./SmolLM2-135M-Instruct-4bit --prompt 'Why is the sky blue?'\n"
      "  mlxlm chat --model ./SmolLM2-135M-Instruct-4bit\n\n"
      "Exit codes: 0 success, 1 failure, 2 wrong command line, 130 stopped by Ctrl-C.\n";
  return text;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string hint(const std::string& word, std::span<const std::string> candidates) {
  const std::string near = suggest(word, candidates);
  return near.empty() ? "" : format_text("; did you mean '{}'?", near);
}

/// What to do with a word that belongs to no option.
std::string advice(const CLI::App& app, const std::string& word) {
  std::error_code ignored;
  const bool exists = std::filesystem::exists(word, ignored);
  if (exists && word.ends_with(".gguf") && app.get_option_no_throw("--gguf") != nullptr)
    return "did you mean '--gguf'?";
  if (exists && app.get_option_no_throw("--model") != nullptr) return "name a model with '--model'";
  return "put a value with spaces in quotes";
}

/// The message for words that no option took: the first that looks like an option, else the first.
std::string unknown_words(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining();
  auto word =
      std::find_if(words.begin(), words.end(), [](const std::string& w) { return w.size() > 1 && w[0] == '-'; });
  if (word == words.end()) {
    const std::string first = words.empty() ? "" : words.front();
    return format_text("unexpected argument '{}'; {}", printable(first), advice(app, first));
  }
  if (*word == "-qa" && app.get_option_no_throw("--quantize-activations") != nullptr) {
    return "-qa: activations are quantised by --precision fast (the default); leave it out";
  }
  const std::string name = word->substr(0, word->find('='));
  return format_text("unknown option '{}'{}", printable(name), hint(name, option_names(app)));
}

/// "--name=" becomes "--name" and an empty value: CLI11 would take the next word for the value. The result is reversed,
/// as CLI11 wants it.
std::vector<std::string> prepare(const CLI::App& app, std::span<const std::string> args) {
  const auto takes_value = [&app](const std::string& word) {
    const CLI::Option* option = word.size() > 1 && word[0] == '-' ? app.get_option_no_throw(word) : nullptr;
    return option != nullptr && option->get_items_expected_max() > 0;
  };
  std::vector<std::string> out;
  bool is_value = false;
  for (const std::string& arg : args) {
    const bool empty_value =
        !is_value && arg.starts_with("--") && arg.ends_with('=') && arg.find('=') + 1 == arg.size();
    if (empty_value && takes_value(arg.substr(0, arg.size() - 1))) {
      out.push_back(arg.substr(0, arg.size() - 1));
      out.emplace_back();
      continue;
    }
    out.push_back(arg);
    is_value = !is_value && takes_value(arg);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

int run_command(const CommandEntry& entry, std::span<const std::string> args) {
  const std::string help_hint = format_text("; see 'mlxlm {} --help'", entry.name);
  const std::unique_ptr<Command> command = entry.create();
  CLI::App app(entry.summary, std::string("mlxlm ") + entry.name);
  app.set_help_flag("-h,--help", "Show this help");
  app.get_formatter()->column_width(36);
  app.get_formatter()->label("REQUIRED", "(required)");
  app.footer(entry.examples);
  try {
    command->add_options(app);
    app.parse(prepare(app, args));
  } catch (const CLI::CallForHelp&) {
    write_out(app.help());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    // A misspelt option comes first: CLI11 would rather say that the option it stands for is missing.
    throw UsageError((app.remaining_size() > 0 ? unknown_words(app) : error.what()) + help_hint);
  }
  try {
    return command->run();
  } catch (const UsageError& error) {
    throw UsageError(error.what() + help_hint);
  }
}

int dispatch(std::span<const std::string> args) {
  if (args.empty()) {
    write_err(program_help());
    return kExitUsage;
  }
  const std::string& name = args.front();
  if (name == "--help" || name == "-h" || (name == "help" && args.size() == 1)) {
    write_out(program_help());
    return kExitOk;
  }
  if (name == "--version") {
    write_out(format_text("mlxlm {}\n", version()));
    return kExitOk;
  }
  if (name == "help") {
    const std::vector<std::string> as_option = {args[1], "--help"};
    return dispatch(as_option);
  }
  for (const CommandEntry& entry : kCommands) {
    if (name == entry.name) return run_command(entry, args.subspan(1));
  }
  std::vector<std::string> known = {"--help", "--version"};
  for (const CommandEntry& entry : kCommands) known.emplace_back(entry.name);
  throw UsageError(format_text("unknown {} '{}'{}; see 'mlxlm --help'", name.starts_with('-') ? "option" : "command",
                               printable(name), hint(name, known)));
}

void report(const std::string& message) { write_err("mlxlm: error: " + message + "\n"); }

}  // namespace

std::span<const CommandEntry> commands() { return kCommands; }

int run_program(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(), handled as ClosedOutput
  exit_on_interrupt();
  try {
    return dispatch(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const ClosedOutput&) {
    return kExitOk;
  } catch (const UsageError& error) {
    report(error.what());
    return kExitUsage;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) return kExitInterrupted;
    report(error.what());
  } catch (const std::bad_alloc&) {
    report("out of memory; 'mlxlm info DIR' shows what a model and its context need");
  } catch (const std::exception& error) {
    report(error.what());
  }
  return kExitError;
}

}  // namespace mlxlm::cli
