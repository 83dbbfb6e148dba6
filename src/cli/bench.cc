// mlxlm bench: prefill and decode speed beside the limits of the machine.
#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "base/format.h"
#include "base/memory.h"
#include "cli/bench_profile.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report.h"
#include "engine/model_impl.h"
#include "kernels/peak.h"

namespace mlxlm::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// One run and the limits measured just before it.
struct BenchRun {
  double prefill_tps = 0;  // all sequences together
  double decode_tps = 0;   // all sequences together
  MachineLimits limits;
  nn::PassProfile prefill, decode;  // where --profile asks for them
};

class BenchCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  void check_context(const ModelInfo& info) const;
  std::vector<int32_t> random_ids(int64_t count, uint32_t seed, int64_t vocab_size) const;
  void fill(nn::Executor& executor, nn::KvSequence& sequence, uint32_t seed) const;
  void measure(nn::Executor& executor, BenchRun& run) const;
  double decode_share(const ModelInfo& info, const BenchRun& run) const;
  double prefill_share(const ModelInfo& info, const BenchRun& run) const;
  io::Json to_json(const ModelInfo& info, const std::vector<BenchRun>& runs) const;
  io::Json profile_of(nn::Executor& executor, const BenchRun& run) const;
  std::string to_text(const ModelInfo& info, const io::Json& json) const;

  ModelOptions model_;
  int prompt_tokens_ = 512;
  int generation_tokens_ = 128;
  int batch_size_ = 1;
  int depth_ = 0;
  int repeats_ = 3;
  int prefill_step_size_ = 2048;
  bool profile_ = false;
  bool json_ = false;
};

void BenchCommand::add_options(CLI::App& app) {
  model_.add_to(app, "--model,-m");
  OptionGroup group(app, "Measurement");
  group.integer("--prompt-tokens,-p", prompt_tokens_, 1, "Tokens of each prompt");
  group.integer("--generation-tokens,-g", generation_tokens_, 1, "Tokens decoded after each prompt");
  group.integer("--batch-size,-b", batch_size_, 1, "Sequences that run together");
  group.integer("--depth,-d", depth_, 0, "Tokens that each sequence holds before its prompt, not timed");
  group.integer("--repeats,--num-trials,-n", repeats_, 1, "Runs; the figures are their medians");
  group.integer("--prefill-step-size", prefill_step_size_, 1, "Prompt tokens of a sequence per pass");
  group.flag("--profile", profile_, "Show the time of each part of a pass (of the fastest run) beside its limit");
  group.flag("--json", json_, "Print one JSON object");
  static constexpr RefusedFlag kRefused[] = {
      {"--pipeline", false, "running on several machines is not built yet; leave the flag out"},
      {"--quantize-activations", false, "activations are quantised by --precision fast (the default); leave it out"},
      {"--trust-remote-code", false, "code from a model folder is never run; leave the flag out"},
      {"--delay", true, "a pause between runs is not built in; use -n 1 and sleep"},
  };
  add_refused(app, kRefused);
}

void BenchCommand::check_context(const ModelInfo& info) const {
  const int64_t total = int64_t{depth_} + prompt_tokens_ + generation_tokens_;
  if (info.max_context > 0 && total > info.max_context) {
    throw_invalid("bench: depth {} + prompt {} + generation {} = {} tokens, but the model's context is {}; lower them",
                  depth_, prompt_tokens_, generation_tokens_, total, info.max_context);
  }
}

std::vector<int32_t> BenchCommand::random_ids(int64_t count, uint32_t seed, int64_t vocab_size) const {
  std::mt19937 generator(seed);  // the same ids on every machine; a distribution's would differ between libraries
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint64_t>(vocab_size));
  return ids;
}

void BenchCommand::fill(nn::Executor& executor, nn::KvSequence& sequence, uint32_t seed) const {
  const std::vector<int32_t> ids = random_ids(depth_, seed, executor.spec().vocab_size);
  std::vector<float> no_logits;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min(ids.size() - done, static_cast<size_t>(prefill_step_size_));
    const nn::Span span = {&sequence, std::span(ids).subspan(done, count), nn::Rows::none};
    executor.forward({&span, 1}, no_logits);
    done += count;
  }
}

void BenchCommand::measure(nn::Executor& executor, BenchRun& run) const {
  const auto n = static_cast<size_t>(batch_size_);
  const int64_t vocab = executor.spec().vocab_size;
  std::vector<nn::KvSequence> sequences;
  std::vector<std::vector<int32_t>> ids;  // what each sequence feeds next
  for (size_t i = 0; i < n; ++i) {
    const auto seed = static_cast<uint32_t>(i);
    sequences.push_back(executor.new_sequence());
    fill(executor, sequences[i], 2 * seed);
    ids.push_back(random_ids(prompt_tokens_, 2 * seed + 1, vocab));
  }
  std::vector<float> logits;
  const auto forward = [&](size_t first, size_t count, nn::Rows rows) {
    std::vector<nn::Span> spans;
    for (size_t i = 0; i < n; ++i) spans.push_back({&sequences[i], std::span(ids[i]).subspan(first, count), rows});
    executor.forward(spans, logits);
  };
  const auto choose = [&] {  // greedy
    for (size_t i = 0; i < n; ++i) {
      const int64_t best = executor.kernels().argmax(logits.data() + i * static_cast<size_t>(vocab), vocab);
      ids[i].assign(1, static_cast<int32_t>(std::max<int64_t>(best, 0)));
    }
  };
  if (profile_) executor.set_profile(&run.prefill);
  const Clock::time_point start = Clock::now();
  for (size_t done = 0; done < ids.front().size();) {
    const size_t count = std::min(ids.front().size() - done, static_cast<size_t>(prefill_step_size_));
    done += count;
    forward(done - count, count, done == ids.front().size() ? nn::Rows::last : nn::Rows::none);
  }
  choose();
  if (profile_) executor.set_profile(&run.decode);
  const Clock::time_point first_tokens = Clock::now();
  for (int i = 0; i < generation_tokens_; ++i) {
    forward(0, 1, nn::Rows::last);
    choose();
  }
  const auto sequences_count = static_cast<double>(n);
  run.prefill_tps = sequences_count * prompt_tokens_ / std::chrono::duration<double>(first_tokens - start).count();
  run.decode_tps = sequences_count * generation_tokens_ / seconds_since(first_tokens);
  executor.set_profile(nullptr);
}

io::Json BenchCommand::profile_of(nn::Executor& executor, const BenchRun& run) const {
  PassCosts prefill, decode;
  for (int64_t done = 0, count = 0; done < prompt_tokens_; done += count) {
    count = std::min<int64_t>(prompt_tokens_ - done, prefill_step_size_);
    prefill.add_pass(executor, batch_size_, depth_ + done, count, done + count == prompt_tokens_ ? batch_size_ : 0);
  }
  for (int64_t i = 0; i < generation_tokens_; ++i) {
    decode.add_pass(executor, batch_size_, int64_t{depth_} + prompt_tokens_ + i, 1, batch_size_);
  }
  return {{"prefill", profile_json(run.prefill, prefill, run.limits)},
          {"decode", profile_json(run.decode, decode, run.limits)}};
}

/// Time of a decode step at the limit (reading the weights once, or the multiply-adds of the batch) by its real time.
double BenchCommand::decode_share(const ModelInfo& info, const BenchRun& run) const {
  const double rate = info.precision == Precision::exact ? run.limits.float32_gmac_per_s : run.limits.int8_gmac_per_s;
  const double read_seconds = static_cast<double>(info.bytes_per_token) / (run.limits.read_gb_per_s * 1e9);
  const double multiply_seconds = static_cast<double>(info.macs_per_token) * batch_size_ / (rate * 1e9);
  return std::max(read_seconds, multiply_seconds) * run.decode_tps / batch_size_;
}

/// The matrix products of the prompt at the machine's rate by the real time. Only the last token needs the head.
double BenchCommand::prefill_share(const ModelInfo& info, const BenchRun& run) const {
  const double rate = info.precision == Precision::exact ? run.limits.float32_gmac_per_s : run.limits.int8_gmac_per_s;
  const auto head = static_cast<double>(info.vocab_size * info.hidden_size);
  const double per_token = static_cast<double>(info.macs_per_token) - head + head / prompt_tokens_;
  return per_token * run.prefill_tps / (rate * 1e9);
}

int BenchCommand::run() {
  const Loaded loaded = model_.load();
  const ModelInfo& info = loaded.model.info();
  check_context(info);
  nn::Executor& executor = loaded.model.impl().executor();
  if (!json_) {
    write_out(format_text("{}: {}, {}, {} threads, {} kernels, precision {}\n", info.path, info.model_type,
                          info.quantization, info.threads, info.kernels, model_.precision));
  }
  BenchRun warm_up;
  measure(executor, warm_up);
  std::vector<BenchRun> runs;
  for (int i = 0; i < repeats_; ++i) {
    BenchRun& run = runs.emplace_back();
    run.limits = measure_machine(info.threads, info.kernels);
    measure(executor, run);
    if (!json_) {
      write_out(format_text("Run {}: prefill {:.1f} tokens/s, decode {:.1f} tokens/s, read {:.1f} GB/s\n", i + 1,
                            run.prefill_tps, run.decode_tps, run.limits.read_gb_per_s));
    }
  }
  io::Json json = to_json(info, runs);
  if (profile_) {
    const auto slower = [](const BenchRun& a, const BenchRun& b) { return a.decode_tps < b.decode_tps; };
    json["profile"] = profile_of(executor, *std::ranges::max_element(runs, slower));
  }
  write_out(json_ ? json_text(json, true) : to_text(info, json));
  return kExitOk;
}

io::Json BenchCommand::to_json(const ModelInfo& info, const std::vector<BenchRun>& runs) const {
  io::Json json, lists;
  const auto add = [&](const char* name, const auto& value_of) {
    std::vector<double> values;
    values.reserve(runs.size());
    for (const BenchRun& run : runs) values.push_back(value_of(run));
    json[name] = median(values);
    lists[name] = values;
  };
  add("prefill_tps", [](const BenchRun& run) { return run.prefill_tps; });
  add("decode_tps", [](const BenchRun& run) { return run.decode_tps; });
  add("read_gb_per_s", [](const BenchRun& run) { return run.limits.read_gb_per_s; });
  add("int8_gmac_per_s", [](const BenchRun& run) { return run.limits.int8_gmac_per_s; });
  add("float32_gmac_per_s", [](const BenchRun& run) { return run.limits.float32_gmac_per_s; });
  json["bytes_per_token"] = info.bytes_per_token;
  add("decode_share_of_limit", [&](const BenchRun& run) { return decode_share(info, run); });
  add("prefill_share_of_limit", [&](const BenchRun& run) { return prefill_share(info, run); });
  json["prompt_tokens"] = prompt_tokens_;
  json["generation_tokens"] = generation_tokens_;
  json["batch_size"] = batch_size_;
  json["depth"] = depth_;
  json["threads"] = info.threads;
  json["kernels"] = info.kernels;
  json["precision"] = model_.precision;
  json["peak_memory"] = static_cast<double>(peak_resident_bytes()) / 1e9;
  json["runs"] = std::move(lists);
  return json;
}

std::string BenchCommand::to_text(const ModelInfo& info, const io::Json& json) const {
  const auto value = [&json](const char* name) { return json[name].get<double>(); };
  const bool exact = info.precision == Precision::exact;
  std::string text = format_text(
      "\nMedians of {} run{}, {} sequence{} at depth {}\n"
      "  prefill {:9.1f} tokens/s  {:3.0f} % of the {:.0f} G multiply-adds/s in {}\n"
      "  decode  {:9.1f} tokens/s  {:3.0f} % of the limit: {} per token at {:.1f} GB/s\n"
      "  Peak memory: {:.3f} GB\n",
      repeats_, repeats_ == 1 ? "" : "s", batch_size_, batch_size_ == 1 ? "" : "s", depth_, value("prefill_tps"),
      100 * value("prefill_share_of_limit"), value(exact ? "float32_gmac_per_s" : "int8_gmac_per_s"),
      exact ? "float32" : "int8", value("decode_tps"), 100 * value("decode_share_of_limit"),
      bytes_text(static_cast<double>(info.bytes_per_token)), value("read_gb_per_s"), value("peak_memory"));
  if (profile_) {
    text += profile_text(json["profile"]["prefill"], "Prefill", "token", int64_t{batch_size_} * prompt_tokens_);
    text += profile_text(json["profile"]["decode"], "Decode", "step", generation_tokens_);
  }
  return text;
}

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace mlxlm::cli
