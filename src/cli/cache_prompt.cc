// mlxlm cache-prompt: the keys and values of a prompt, computed once and kept in a file.
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "cli/cache_file.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/settings.h"

namespace mlxlm::cli {
namespace {

class CachePromptCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer) const;
  void fill(const Loaded& loaded, PromptCache& cache, std::stop_token cancel) const;

  ModelOptions model_;
  GenerationSettings settings_;
  std::string prompt_;
  std::string cache_file_;
  std::string eos_token_;
};

void CachePromptCommand::add_options(CLI::App& app) {
  model_.add_to(app, "--model");
  OptionGroup group(app, "Prompt");
  group.text("--prompt,-p", prompt_, "The beginning of the user's message; '-' reads standard input").required();
  group.text("--prompt-cache-file", cache_file_, "The file to write, for generate --prompt-cache-file")
      .type("FILE")
      .required();
  group.text("--eos-token", eos_token_, "A token that ends answers too when the file is used");
  group.integer("--prefill-step-size", settings_.prefill_step_size, 1,
                "Prompt tokens per pass; never changes the result");
  add_settings(app, settings_, {SettingGroup::memory});
  static constexpr RefusedFlag kRefused[] = {
      {"--adapter-path", true, "LoRA adapters are not built yet; fuse the adapter into the model first"},
      {"--trust-remote-code", false, "code from a model folder is never run; leave the flag out"},
  };
  add_refused(app, kRefused);
}

std::vector<int32_t> CachePromptCommand::prompt_ids(const Tokenizer& tokenizer) const {
  const std::string text = prompt_ == "-" ? read_prompt_stdin() : prompt_;
  // The user's turn stays open: generate goes on with it.
  const ChatTemplateOptions open = {.add_generation_prompt = false, .continue_final_message = true};
  std::vector<int32_t> ids =
      tokenizer.has_chat_template() ? tokenizer.apply_chat_template({{"user", text}}, open) : tokenizer.encode(text);
  if (ids.empty()) throw_invalid("--prompt: expected at least one token, got an empty prompt");
  return ids;
}

void CachePromptCommand::fill(const Loaded& loaded, PromptCache& cache, std::stop_token cancel) const {
  ProgressBar progress("Processing the prompt");
  GenerateOptions options;
  options.max_tokens = 0;
  options.prefill_step_size = settings_.prefill_step_size;
  options.prompt_cache = &cache;
  options.prompt_progress = [&progress](int64_t done, int64_t total) { progress.update(done, total); };
  options.cancel = std::move(cancel);
  const std::vector<int32_t> ids = prompt_ids(loaded.tokenizer);
  const auto start = std::chrono::steady_clock::now();
  for (const GenerationResponse& response : stream_generate(loaded.model, loaded.tokenizer, Prompt(ids), options)) {
    if (response.finish_reason == "cancelled") throw_error(ErrorKind::cancelled, "stopped by Ctrl-C");
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  progress.clear();
  write_out(format_text("Processed {} tokens ({:.2f} tok/s)\n", ids.size(),
                        static_cast<double>(ids.size()) / seconds.count()));
}

int CachePromptCommand::run() {
  const std::string conflict = settings_conflict(settings_, NameStyle::option);
  if (!conflict.empty()) throw UsageError(conflict);
  Interrupts interrupts(SecondInterrupt::kills);
  const StopOnInterrupt stop(interrupts);
  const Loaded loaded = model_.load(stop.token());
  if (!eos_token_.empty()) resolve_eos_tokens(loaded.tokenizer, {&eos_token_, 1});
  PromptCache cache(loaded.model, cache_options(settings_));
  fill(loaded, cache, stop.token());
  write_out(format_text("Peak memory: {:.3f} GB\nSaving...\n", static_cast<double>(peak_resident_bytes()) / 1e9));
  cache.save(cache_file_, cache_metadata(model_.model, eos_token_));
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_cache_prompt_command() { return std::make_unique<CachePromptCommand>(); }

}  // namespace mlxlm::cli
