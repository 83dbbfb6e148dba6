// mlxlm generate: complete one prompt.
#include "base/error.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/report.h"

namespace mlxlm::cli {
namespace {

class GenerateCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  void add_prompt_options(CLI::App& app);
  void add_output_options(CLI::App& app);
  void check_combination() const;
  std::string prompt_text() const;
  std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer) const;
  std::vector<int32_t> template_ids(const Tokenizer& tokenizer, const std::string& text) const;
  GenerateOptions generate_options(const Tokenizer& tokenizer, std::stop_token cancel) const;
  int stream(const Loaded& loaded, GenerateOptions options, std::vector<int32_t> ids) const;
  void print_end(const GenerationRecord& record) const;

  ModelOptions model_;
  SamplingOptions sampling_;
  std::string prompt_ = "hello";
  std::optional<std::string> prompt_file_;
  std::optional<std::string> prompt_ids_;
  std::optional<std::string> system_prompt_;
  std::optional<std::string> prefill_response_;
  std::string template_config_;  // JSON object, or empty
  bool ignore_template_ = false;
  std::vector<std::string> extra_eos_tokens_;
  std::vector<std::string> stop_;
  int max_tokens_ = 100;
  int prefill_step_size_ = 2048;
  int top_logprobs_ = 0;
  bool verbose_ = true;
  bool json_ = false;
};

void GenerateCommand::add_options(CLI::App& app) {
  model_.add_to(app, "--model");
  add_prompt_options(app);
  sampling_.add_to(app);
  add_output_options(app);
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
  group.text("--system-prompt", system_prompt_, "System message for the chat template");
  group.text("--prefill-response", prefill_response_, "Beginning of the answer, to be continued");
  group.flag("--ignore-chat-template", ignore_template_, "Use the prompt as it is");
  group.text("--chat-template-config", template_config_, "JSON object of further template variables").type("JSON");
  group.unused_flag("--use-default-chat-template");  // without effect in mlx_lm too
}

void GenerateCommand::add_output_options(CLI::App& app) {
  OptionGroup group(app, "Generation and output");
  group.integer("--max-tokens,-m", max_tokens_, -1, "Most tokens to generate; -1: until the model ends");
  group.list("--stop", stop_, 1, "End at this text, which is not printed; repeatable");
  group.list("--extra-eos-token", extra_eos_tokens_, 1000, "Tokens (text or id) that end generation too");
  group.integer("--prefill-step-size", prefill_step_size_, 1, "Prompt tokens per pass; never changes the text");
  group.boolean("--verbose", verbose_, "true: text and statistics; false: only the text");
  group.flag("--json", json_, "Print one JSON object instead: text, ids, logprobs, statistics, seed");
  group.integer("--top-logprobs", top_logprobs_, 0, "With --json: the N likeliest tokens of each step");
}

void GenerateCommand::check_combination() const {
  const bool template_wanted = system_prompt_ || prefill_response_ || !template_config_.empty();
  if (template_wanted && (ignore_template_ || prompt_ids_)) {
    throw UsageError(format_text(
        "--system-prompt, --prefill-response and --chat-template-config need the chat template; {} goes without it",
        prompt_ids_ ? "--prompt-ids" : "--ignore-chat-template"));
  }
  if (top_logprobs_ > 0 && !json_) throw UsageError("--top-logprobs needs --json");
}

std::string GenerateCommand::prompt_text() const {
  if (prompt_file_) return read_prompt_file(*prompt_file_);
  const std::string text = unescape_prompt(prompt_);
  return text == "-" ? read_prompt_stdin() : text;
}

std::vector<int32_t> GenerateCommand::template_ids(const Tokenizer& tokenizer, const std::string& text) const {
  std::vector<Message> messages;
  if (system_prompt_) messages.push_back({"system", *system_prompt_});
  messages.push_back({"user", text});
  if (prefill_response_) messages.push_back({"assistant", *prefill_response_});
  ChatTemplateOptions options;
  options.add_generation_prompt = !prefill_response_;
  options.continue_final_message = prefill_response_.has_value();
  options.variables_json = template_config_;
  return tokenizer.apply_chat_template(messages, options);
}

std::vector<int32_t> GenerateCommand::prompt_ids(const Tokenizer& tokenizer) const {
  if (prompt_ids_) return parse_numbers("--prompt-ids", *prompt_ids_);
  const std::string text = prompt_text();
  if (!ignore_template_ && tokenizer.has_chat_template()) return template_ids(tokenizer, text);
  if (system_prompt_ || prefill_response_ || !template_config_.empty()) {
    throw_invalid(
        "{}: the model has no chat template, which --system-prompt, --prefill-response and "
        "--chat-template-config need; put the text into --prompt",
        model_.model);
  }
  // Special tokens are added unless the text writes its own BOS.
  const std::optional<int32_t> bos = tokenizer.bos_token_id();
  const std::string bos_text = bos ? tokenizer.id_to_token(*bos).value_or("") : "";
  const bool has_bos = !bos_text.empty() && text.starts_with(bos_text);
  std::vector<int32_t> ids = tokenizer.encode(text, !has_bos);
  if (ids.empty()) throw_invalid("--prompt: expected at least one token, got an empty prompt");
  return ids;
}

GenerateOptions GenerateCommand::generate_options(const Tokenizer& tokenizer, std::stop_token cancel) const {
  GenerateOptions options;
  options.max_tokens = max_tokens_;
  options.sampler = sampling_.sampler;
  options.seed = sampling_.seed;
  options.stop = stop_;
  options.extra_eos_token_ids = resolve_eos_tokens(tokenizer, extra_eos_tokens_);
  options.prefill_step_size = prefill_step_size_;
  options.top_logprobs = top_logprobs_;
  options.cancel = std::move(cancel);
  return options;
}

int GenerateCommand::run() {
  check_combination();
  Interrupts interrupts(SecondInterrupt::kills);
  const StopOnInterrupt stop(interrupts);
  const Loaded loaded = model_.load();
  std::vector<int32_t> ids = prompt_ids(loaded.tokenizer);
  if (stop.token().stop_requested()) return kExitInterrupted;
  return stream(loaded, generate_options(loaded.tokenizer, stop.token()), std::move(ids));
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
  return interrupted ? kExitInterrupted : kExitOk;
}

void GenerateCommand::print_end(const GenerationRecord& record) const {
  if (json_) {
    write_out(json_text(record_json(record, top_logprobs_ > 0)));
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
