// mlxlm chat: a conversation in the terminal.
#include "base/error.h"
#include "base/format.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/line_input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/settings.h"
#include "text/utf8.h"

namespace mlxlm::cli {
namespace {

constexpr const char* kHelp =
    "/reset (r)  start a new conversation\n"
    "/help  (h)  show this help\n"
    "/exit  (q)  leave; so does Ctrl-D\n"
    "Ctrl-C stops an answer. A line that ends with \\ continues on the next.\n";

class ChatCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  enum class Next { go_on, leave };

  int converse(const Loaded& loaded);
  Next handle_line(const Loaded& loaded, ChatSession& session, Interrupts& interrupts, const std::string& line);
  void answer(const Loaded& loaded, ChatSession& session, Interrupts& interrupts, const std::string& user_text);
  GenerateOptions answer_options(const Loaded& loaded, ChatSession& session, const StopOnInterrupt& stop,
                                 ProgressBar& progress) const;
  GenerationRecord stream_answer(const Loaded& loaded, ChatSession& session, const GenerateOptions& options,
                                 const std::string& user_text, ProgressBar& progress);
  void print_notes(const ChatSession& session, const GenerationRecord& record) const;
  /// Talk about the chat itself: on standard error, and only where someone sits at the terminal.
  void say(const std::string& text) const {
    if (interactive_) write_err(text);
  }

  ModelOptions model_;
  GenerationSettings settings_;
  std::string draft_folder_;
  std::optional<Model> draft_;
  bool stats_ = false;
  bool interactive_ = false;
};

void ChatCommand::add_options(CLI::App& app) {
  model_.add_to(app, "--model");
  settings_.seed = 0;  // this and the next as mlx_lm.chat
  settings_.max_tokens = 256;
  add_settings(app, settings_,
               {SettingGroup::conversation, SettingGroup::answer, SettingGroup::form, SettingGroup::sampling,
                SettingGroup::penalties, SettingGroup::memory});
  add_draft_model(app, draft_folder_);
  add_settings(app, settings_, {SettingGroup::speculation});
  OptionGroup(app, "Output").flag("--stats", stats_, "After each answer, print tokens and speed to standard error");
  add_refused(app, refused_generation_flags());
}

int ChatCommand::run() {
  const std::string conflict = settings_conflict(settings_, NameStyle::option, !draft_folder_.empty());
  if (!conflict.empty()) throw UsageError(conflict);
  interactive_ = stdin_is_terminal();
  const Loaded loaded = model_.load();
  if (!loaded.tokenizer.has_chat_template()) {
    throw_invalid("{}: the model has no chat template, so it cannot chat; complete text with 'mlxlm generate'",
                  model_.model);
  }
  draft_ = load_draft_model(model_, draft_folder_);
  generate_options(settings_, loaded.tokenizer, draft_);  // a wrong setting is told now, not at the first message
  return converse(loaded);
}

int ChatCommand::converse(const Loaded& loaded) {
  Interrupts interrupts(SecondInterrupt::ignored);
  ChatSession session(loaded, settings_);
  LineInput input(interrupts.fd());
  say(format_text("Chat with {}. /help shows the commands.\n", loaded.model.info().path));
  std::string message;  // lines joined so far
  bool interrupted_before = false;
  while (true) {
    std::string line;
    const LineInput::Event event = input.read(message.empty() ? ">> " : ".. ", line);
    if (event == LineInput::Event::end) {
      say("\n");
      return kExitOk;
    }
    if (event == LineInput::Event::interrupted) {
      interrupts.clear();
      if (!interactive_ || interrupted_before) {
        say("\n");
        return kExitInterrupted;
      }
      say("\n(Ctrl-C again or Ctrl-D leaves the chat)\n");
      interrupted_before = true;
      message.clear();
      continue;
    }
    interrupted_before = false;
    if (line.ends_with('\\')) {
      line.back() = '\n';
      message += line;
      continue;
    }
    if (handle_line(loaded, session, interrupts, message + line) == Next::leave) return kExitOk;
    message.clear();
  }
}

ChatCommand::Next ChatCommand::handle_line(const Loaded& loaded, ChatSession& session, Interrupts& interrupts,
                                           const std::string& line) {
  if (line == "/exit" || line == "/quit" || line == "q") return Next::leave;
  if (line == "/help" || line == "h") {
    write_err(kHelp);
  } else if (line == "/reset" || line == "r") {
    session.reset();
    say("(new conversation)\n");
  } else if (line.starts_with('/')) {
    write_err(format_text("mlxlm: error: unknown command '{}'; /help shows the commands\n", printable(line)));
  } else if (text::find_invalid_utf8(line)) {
    write_err("mlxlm: error: the message is not UTF-8 text; it was not sent\n");
  } else if (!line.empty()) {
    answer(loaded, session, interrupts, line);
  }
  return Next::go_on;
}

void ChatCommand::answer(const Loaded& loaded, ChatSession& session, Interrupts& interrupts,
                         const std::string& user_text) {
  interrupts.clear();
  const StopOnInterrupt stop(interrupts);
  ProgressBar progress("Reading");
  const GenerateOptions options = answer_options(loaded, session, stop, progress);
  const size_t turns = session.turns();
  try {
    const GenerationRecord record = stream_answer(loaded, session, options, user_text, progress);
    session.end_turn(record.text);
    write_out("\n");
    print_notes(session, record);
    if (session.turns() == turns) say("(no answer; your message was taken back)\n");
  } catch (const Error& error) {
    // The conversation goes on without this message; a full context, for example, can be reset.
    if (error.kind() == ErrorKind::io) throw;
    progress.clear();
    write_err(format_text("mlxlm: error: {}\n", error.what()));
  }
}

GenerateOptions ChatCommand::answer_options(const Loaded& loaded, ChatSession& session, const StopOnInterrupt& stop,
                                            ProgressBar& progress) const {
  GenerateOptions options = generate_options(settings_, loaded.tokenizer, draft_);
  options.cache = {};  // the session's
  options.prompt_cache = &session.cache();
  options.cancel = stop.token();
  options.prompt_progress = [&progress](int64_t done, int64_t total) { progress.update(done, total); };
  return options;
}

GenerationRecord ChatCommand::stream_answer(const Loaded& loaded, ChatSession& session, const GenerateOptions& options,
                                            const std::string& user_text, ProgressBar& progress) {
  GenerationRecord record;
  const std::vector<int32_t> ids = session.begin_turn(user_text);
  try {
    TokenStream tokens = stream_generate(loaded.model, loaded.tokenizer, Prompt(ids), options);
    for (const GenerationResponse& response : tokens) {
      progress.clear();
      record.add(response);
      write_out(response.text);
    }
  } catch (const Error&) {
    session.end_turn("");
    throw;
  }
  progress.clear();
  return record;
}

void ChatCommand::print_notes(const ChatSession& session, const GenerationRecord& record) const {
  const std::string reason = record.last.finish_reason.value_or("");
  if (reason == "cancelled") say("(stopped)\n");
  if (reason == "length") say(format_text("(--max-tokens {} reached)\n", settings_.max_tokens));
  if (reason == "deadline") say("(--deadline passed)\n");
  if (!stats_) return;
  write_err(
      format_text("prompt: {} new and {} cached tokens, {:.1f} tokens-per-sec; generation: {} tokens, {:.1f} "
                  "tokens-per-sec\n",
                  record.last.prompt_tokens, session.cached_tokens(), record.last.prompt_tps,
                  record.last.generation_tokens, record.last.generation_tps));
}

}  // namespace

std::unique_ptr<Command> make_chat_command() { return std::make_unique<ChatCommand>(); }

}  // namespace mlxlm::cli
