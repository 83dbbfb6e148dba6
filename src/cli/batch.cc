// mlxlm batch: many requests from a file of JSON lines, answered together.
#include <deque>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "cli/batch_files.h"
#include "cli/batch_request.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/settings.h"

namespace mlxlm::cli {
namespace {

// Answers that wait for an earlier one take at most about this much memory; reading goes on when some are written.
constexpr size_t kMostWaitingBytes = size_t{64} << 20;

class BatchCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  ModelOptions model_;
  GenerationSettings settings_;
  std::string input_;
  std::string output_ = "-";
  std::string draft_model_;
  BatchOptions batch_;
  bool resume_ = false;
  bool verbose_ = true;
};

/// Keeps the batch full, and writes the answers in the order of the input.
class BatchRun {
 public:
  BatchRun(const Loaded& loaded, std::optional<Model> draft, const GenerationSettings& settings,
           const BatchOptions& options)
      : tokenizer_(loaded.tokenizer),
        draft_(std::move(draft)),
        settings_(settings),
        most_running_(static_cast<size_t>(options.completion_batch_size)),
        generator_(loaded.model, loaded.tokenizer, options) {}

  /// Passes over the request whose answer stands in the output already.
  void skip(LineReader& input, const std::string& answer, const std::string& place);
  /// Until the input ends. False: stopped before.
  bool run(LineReader& input, AnswerFile& output, const std::stop_token& stop);

  int64_t written() const { return next_to_write_; }
  int64_t errors() const { return errors_; }
  BatchStats stats() const { return generator_.stats(); }

 private:
  struct Running {
    int64_t index = 0;
    int64_t line = 0;
    io::Json id;
    bool top_logprobs = false;
    GenerationRecord record;
  };

  void fill(LineReader& input, const std::stop_token& stop);
  void start(const std::string& line, int64_t line_number);
  void take(BatchResponse response);
  void finish(int64_t index, const io::Json& answer);
  void fail(int64_t index, int64_t line, const io::Json& id, const LineError& error);
  void write_ready(AnswerFile& output);
  void show_progress(const LineReader& input);

  Tokenizer tokenizer_;
  std::optional<Model> draft_;
  GenerationSettings settings_;
  size_t most_running_;
  BatchGenerator generator_;
  std::map<int64_t, Running> running_;       // by the generator's uid
  std::map<int64_t, std::string> finished_;  // lines that wait for earlier ones, by index
  size_t finished_bytes_ = 0;
  int64_t next_index_ = 0;
  int64_t next_to_write_ = 0;
  int64_t errors_ = 0;
  bool input_ended_ = false;
  ProgressBar progress_{"Answering"};
};

void BatchRun::skip(LineReader& input, const std::string& answer, const std::string& place) {
  std::string line;
  if (input.read(line, true) != LineReader::Event::line) {
    throw_invalid(
        "{}: there are more answers than requests, so it is not the output of this input; give another --output",
        place);
  }
  io::Json json;
  try {
    json = io::parse_json(answer, place);
  } catch (const Error&) {  // told below
  }
  const bool is_next = json.is_object() && json.contains("index") && json["index"] == next_index_;
  if (!is_next || !json.contains("id") || json["id"] != line_id(line)) {
    throw_invalid(
        "{}: expected the answer with index {} and id {}, so it is not the output of this input; give another "
        "--output",
        place, next_index_, line_id(line).dump());
  }
  next_to_write_ = ++next_index_;
}

bool BatchRun::run(LineReader& input, AnswerFile& output, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    fill(input, stop);
    write_ready(output);
    if (generator_.idle()) {
      if (input_ended_) return true;
      continue;
    }
    for (BatchResponse& response : generator_.next().responses) take(std::move(response));
    write_ready(output);
    show_progress(input);
  }
  progress_.clear();
  return false;
}

void BatchRun::fill(LineReader& input, const std::stop_token& stop) {
  std::string line;
  while (!input_ended_ && running_.size() < most_running_ && finished_bytes_ < kMostWaitingBytes) {
    // Where requests run, they go on while the next line is on its way.
    const LineReader::Event event = input.read(line, generator_.idle() && finished_.empty(), stop);
    if (event == LineReader::Event::none) return;
    if (event == LineReader::Event::end) {
      input_ended_ = true;
    } else {
      start(line, input.line_number());
    }
  }
}

void BatchRun::start(const std::string& line, int64_t line_number) {
  const int64_t index = next_index_++;
  const io::Json id = line_id(line);
  try {
    BatchRequest request = read_batch_line(line, settings_, tokenizer_, draft_.has_value());
    Running running{index, line_number, id, request.settings.top_logprobs > 0, {}};
    running.record.prompt_token_ids = request.prompt_ids;
    const GenerateOptions options = generate_options(request.settings, tokenizer_, draft_);
    const int64_t uid = generator_.insert(Prompt(std::move(request.prompt_ids)), options);
    running_.emplace(uid, std::move(running));
  } catch (const LineError& error) {
    fail(index, line_number, id, error);
  } catch (const Error& error) {
    fail(index, line_number, id, as_line_error(error));
  }
}

void BatchRun::take(BatchResponse response) {
  const auto it = running_.find(response.uid);
  Running& running = it->second;
  if (response.error) {
    fail(running.index, running.line, running.id, as_line_error(*response.error));
    running_.erase(it);
    return;
  }
  running.record.add(response.response);
  if (!response.response.finish_reason) return;
  io::Json answer = {{"id", running.id}, {"index", running.index}};
  answer.update(record_json(running.record, running.top_logprobs));
  finish(running.index, answer);
  running_.erase(it);
}

void BatchRun::finish(int64_t index, const io::Json& answer) {
  std::string line = json_text(answer);
  finished_bytes_ += line.size();
  finished_.emplace(index, std::move(line));
}

void BatchRun::fail(int64_t index, int64_t line, const io::Json& id, const LineError& error) {
  ++errors_;
  finish(index, {{"id", id},
                 {"index", index},
                 {"error", format_text("line {}: {}", line, error.message)},
                 {"line", line},
                 {"field", error.field.empty() ? io::Json() : io::Json(error.field)}});
}

void BatchRun::write_ready(AnswerFile& output) {
  while (!finished_.empty() && finished_.begin()->first == next_to_write_) {
    output.write(finished_.begin()->second);
    finished_bytes_ -= finished_.begin()->second.size();
    finished_.erase(finished_.begin());
    ++next_to_write_;
  }
}

void BatchRun::show_progress(const LineReader& input) {
  // Lines that are being answered count half: a short file would otherwise begin at its end.
  const int64_t open = next_index_ - next_to_write_;
  const int64_t read = input.bytes_read();
  const int64_t done = next_index_ > 0 ? read - read * open / (2 * next_index_) : 0;
  if (input.bytes_total() > 0) {
    progress_.update(done, input.bytes_total());
  } else {
    progress_.show(format_text("{} answers written, {} in work", next_to_write_, open));
  }
}

void BatchCommand::add_options(CLI::App& app) {
  model_.add_to(app, "--model");
  OptionGroup files(app, "Requests and answers");
  files.text("--input,-i", input_, "JSON lines, a request each; '-' reads standard input").type("FILE").required();
  files.text("--output,-o", output_, "The answers, a JSON line each, in the order of the input; '-': standard output")
      .type("FILE")
      .shown_default(output_);
  files.flag("--resume", resume_, "Keep the answers that --output holds and go on behind them");
  files.boolean("--verbose", verbose_, "true: statistics at the end, on standard error");
  OptionGroup together(app, "Running together");
  together.integer("--batch-size,-b", batch_.completion_batch_size, 1, "Most requests that run at once");
  together.bytes("--kv-bytes", batch_.kv_bytes, "Most memory for keys and values, e.g. 2GB; 0: what the system gives");
  add_settings(app, settings_,
               {SettingGroup::conversation, SettingGroup::one_prompt, SettingGroup::answer, SettingGroup::logprobs,
                SettingGroup::form, SettingGroup::sampling, SettingGroup::penalties, SettingGroup::memory});
  add_draft_model(app, draft_model_);
  add_settings(app, settings_, {SettingGroup::speculation});
  add_refused(app, refused_generation_flags());
}

std::string summary(const BatchRun& run) {
  const BatchStats stats = run.stats();
  return format_text(
      "Answers: {}, of them {} error{}\n"
      "Prompt: {} tokens, {} of them cached, {:.3f} tokens-per-sec\n"
      "Generation: {} tokens, {:.3f} tokens-per-sec\n"
      "Peak memory: {:.3f} GB\n",
      run.written(), run.errors(), run.errors() == 1 ? "" : "s", stats.prompt_tokens, stats.cached_tokens,
      stats.prompt_tps, stats.generation_tokens, stats.generation_tps, stats.peak_memory);
}

int BatchCommand::run() {
  if (resume_ && output_ == "-") throw UsageError("--resume needs --output FILE");
  const std::string conflict = settings_conflict(settings_, NameStyle::option, !draft_model_.empty());
  if (!conflict.empty()) throw UsageError(conflict);
  Interrupts interrupts(SecondInterrupt::kills);
  const StopOnInterrupt stop(interrupts);
  LineReader input(input_);
  const Loaded loaded = model_.load(stop.token());
  BatchRun batch(loaded, load_draft_model(model_, draft_model_, stop.token()), settings_, batch_);
  AnswerFile output(output_, resume_, [&](const std::string& answer, int64_t line) {
    batch.skip(input, answer, format_text("{}: line {}", output_, line));
  });
  const bool complete = batch.run(input, output, stop.token());
  if (!complete) {
    const char* advice = output_ == "-" ? "" : "; --resume goes on behind them";
    write_err(format_text("mlxlm: stopped by Ctrl-C: {} answers are written{}\n", batch.written(), advice));
    return kExitInterrupted;
  }
  if (verbose_) write_err(summary(batch));
  if (batch.errors() > 0) {
    throw_invalid("{} of the requests failed; their answers in {} say why", batch.errors(),
                  output_ == "-" ? "the output" : output_);
  }
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_batch_command() { return std::make_unique<BatchCommand>(); }

}  // namespace mlxlm::cli
