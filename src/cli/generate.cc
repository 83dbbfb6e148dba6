// mlxlm generate: complete one prompt.
#include "base/error.h"
#include "base/format.h"
#include "cli/cache_file.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/prompt_tokens.h"
#include "cli/report.h"
#include "cli/settings.h"

namespace mlxlm::cli {
namespace {

class GenerateCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  void add_prompt_options(CLI::App& app);
  void check_combination() const;
  std::string prompt_text() const;
  std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer) const;
  int stream(const Loaded& loaded, GenerateOptions options, std::vector<int32_t> ids) const;
  void print_end(const GenerationRecord& record) const;

  ModelOptions model_;
  GenerationSettings settings_;
  std::string prompt_ = "hello";
  std::optional<std::string> prompt_file_;
  std::optional<std::string> prompt_ids_;
  std::string cache_file_;
  std::string draft_model_;
  bool verbose_ = true;
  bool json_ = false;
};

void GenerateCommand::add_options(CLI::App& app) {
  model_.add_to(app, "--model", false);
  add_prompt_options(app);
  add_settings(app, settings_, {SettingGroup::conversation, SettingGroup::one_prompt});
  OptionGroup(app, "Prompt")
      .text("--prompt-cache-file", cache_file_, "Go on from this file of cache-prompt; it also names the model")
      .type("FILE");
  OptionGroup output(app, "Output");
  output.boolean("--verbose", verbose_, "true: text and statistics; false: only the text");
  output.flag("--json", json_, "Print one JSON object instead: text, ids, logprobs, statistics, seed");
  add_settings(app, settings_,
               {SettingGroup::logprobs, SettingGroup::answer, SettingGroup::form, SettingGroup::sampling,
                SettingGroup::penalties, SettingGroup::memory});
  add_draft_model(app, draft_model_);
  add_settings(app, settings_, {SettingGroup::speculation});
  add_refused(app, refused_generation_flags());
}

void GenerateCommand::add_prompt_options(CLI::App& app) {
  OptionGroup group(app, "Prompt");
  OptionRef text = group.text("--prompt,-p", prompt_, "The prompt; '-' reads standard input; \\n and \\t are unescaped")
                       .shown_default(prompt_);
  OptionRef file = group.text("--prompt-file", prompt_file_, "Read the prompt from a file, as it is").type("FILE");
  OptionRef ids = group.text("--prompt-ids", prompt_ids_, "Token ids such as 5,7,9, used as they are").type("IDS");
  text.excludes(file).excludes(ids);
  file.excludes(ids);
  group.unused_flag("--use-default-chat-template");  // without effect in mlx_lm too
}

void GenerateCommand::check_combination() const {
  if (model_.model.empty() && cache_file_.empty()) throw UsageError("--model is required");
  const std::string conflict =
      settings_conflict(settings_, NameStyle::option, !draft_model_.empty(), !cache_file_.empty());
  if (!conflict.empty()) throw UsageError(conflict);
  const bool template_wanted =
      settings_.system_prompt || settings_.prefill_response || !settings_.chat_template_config.empty();
  if (template_wanted && prompt_ids_) {
    throw UsageError(
        "--system-prompt, --prefill-response and --chat-template-config need the chat template; --prompt-ids goes "
        "without it");
  }
  if (settings_.top_logprobs > 0 && !json_) throw UsageError("--top-logprobs needs --json");
}

std::string GenerateCommand::prompt_text() const {
  if (prompt_file_) return read_prompt_file(*prompt_file_);
  const std::string text = unescape_prompt(prompt_);
  return text == "-" ? read_prompt_stdin() : text;
}

std::vector<int32_t> GenerateCommand::prompt_ids(const Tokenizer& tokenizer) const {
  if (prompt_ids_) return parse_numbers("--prompt-ids", *prompt_ids_);
  return cache_file_.empty() ? prompt_token_ids(tokenizer, settings_, prompt_text())
                             : continuation_token_ids(tokenizer, settings_, prompt_text());
}

int GenerateCommand::run() {
  check_combination();
  Interrupts interrupts(SecondInterrupt::kills);
  const StopOnInterrupt stop(interrupts);
  if (!cache_file_.empty()) apply_cache_metadata(cache_file_, model_.model, settings_.extra_eos_token);
  const Loaded loaded = model_.load(stop.token());
  const std::optional<Model> draft = load_draft_model(model_, draft_model_, stop.token());
  std::optional<PromptCache> cache;
  if (!cache_file_.empty()) cache = load_cache_file(cache_file_, loaded.model, settings_);
  std::vector<int32_t> ids = prompt_ids(loaded.tokenizer);
  if (stop.token().stop_requested()) return kExitInterrupted;
  GenerateOptions options = generate_options(settings_, loaded.tokenizer, draft);
  options.cancel = stop.token();
  if (cache) {
    options.prompt_cache = &*cache;
    options.cache = {};  // the file's
  }
  return stream(loaded, std::move(options), std::move(ids));
}

int GenerateCommand::stream(const Loaded& loaded, GenerateOptions options, std::vector<int32_t> ids) const {
  const std::stop_token cancel = options.cancel;
  ProgressBar progress("Reading the prompt");
  options.prompt_progress = [&progress](int64_t done, int64_t total) {
    progress.update(done, total);
    if (done == total) progress.clear();
  };
  GenerationRecord record;
  record.prompt_token_ids = ids;
  TokenStream tokens = stream_generate(loaded.model, loaded.tokenizer, Prompt(std::move(ids)), options);
  if (verbose_ && !json_) write_out("==========\n");
  for (const GenerationResponse& response : tokens) {
    progress.clear();
    record.add(response);
    if (!json_) write_out(response.text);
  }
  progress.clear();
  const bool interrupted = cancel.stop_requested() && record.last.finish_reason.value_or("cancelled") == "cancelled";
  if (interrupted && !json_) {
    write_out("\n");
    write_err(statistics_text(record.last));
  } else {
    print_end(record);
  }
  if (has_form(settings_) && record.last.finish_reason == "length") {
    write_err(format_text("mlxlm: the answer ends at {} tokens (--max-tokens) before its form is complete\n",
                          record.last.generation_tokens));
  }
  return interrupted ? kExitInterrupted : kExitOk;
}

void GenerateCommand::print_end(const GenerationRecord& record) const {
  if (json_) {
    write_out(json_text(record_json(record, settings_.top_logprobs > 0)));
  } else if (!verbose_) {
    write_out("\n");
  } else if (record.text.empty()) {
    write_out("\n==========\nNo text generated for this prompt\n");
  } else {
    write_out("\n==========\n" + statistics_text(record.last));
  }
}

}  // namespace

std::unique_ptr<Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace mlxlm::cli
