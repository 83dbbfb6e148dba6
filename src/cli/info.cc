// mlxlm info: what a model is, what it needs, and how fast this machine could run it.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "kernels/peak.h"

namespace mlxlm::cli {
namespace {

/// What a context of `tokens` positions costs.
struct ContextNeed {
  int64_t tokens = 0;
  int64_t kv_bytes = 0;
  int64_t memory_bytes = 0;       // weights and keys and values
  double decode_ceiling_tps = 0;  // at that depth: reads of weights and of all keys and values
};

class InfoCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  std::vector<int64_t> context_lengths(const ModelInfo& info) const;
  static ContextNeed need(const Model& model, const MachineLimits& limits, int64_t tokens);
  static io::Json to_json(const ModelInfo& info, const MachineLimits& limits, const std::vector<ContextNeed>& needs);
  static std::string to_text(const ModelInfo& info, const MachineLimits& limits, const std::vector<ContextNeed>& needs);

  ModelOptions model_;
  std::optional<std::string> context_;
  bool json_ = false;
};

void InfoCommand::add_options(CLI::App& app) {
  model_.add_to(app, "DIR,--model,-m");
  OptionGroup group(app, "Report");
  group.text("--context", context_, "Context lengths such as 4096,32768 to plan memory for").type("LENGTHS");
  group.flag("--json", json_, "Print one JSON object");
}

std::vector<int64_t> InfoCommand::context_lengths(const ModelInfo& info) const {
  std::vector<int64_t> lengths;
  if (!context_) {
    for (const int64_t length : {4096, 32768}) {
      if (info.max_context == 0 || length < info.max_context) lengths.push_back(length);
    }
    if (info.max_context > 0 && info.max_context <= 32768) lengths.push_back(info.max_context);
    return lengths;
  }
  for (const int32_t length : parse_numbers("--context", *context_)) {
    if (length < 1) throw UsageError("--context: expected lengths of at least 1 token");
    lengths.push_back(length);
  }
  return lengths;
}

ContextNeed InfoCommand::need(const Model& model, const MachineLimits& limits, int64_t tokens) {
  ContextNeed need;
  need.tokens = tokens;
  need.kv_bytes = model.kv_bytes(tokens);
  need.memory_bytes = model.info().weight_bytes + need.kv_bytes;
  need.decode_ceiling_tps =
      limits.read_gb_per_s * 1e9 / static_cast<double>(model.info().bytes_per_token + need.kv_bytes);
  return need;
}

int InfoCommand::run() {
  const Loaded loaded = model_.load();
  const ModelInfo& info = loaded.model.info();
  const std::vector<int64_t> lengths = context_lengths(info);
  const MachineLimits limits = measure_machine(info.threads, info.kernels);
  std::vector<ContextNeed> needs;
  needs.reserve(lengths.size());
  for (const int64_t tokens : lengths) needs.push_back(need(loaded.model, limits, tokens));
  write_out(json_ ? json_text(to_json(info, limits, needs), true) : to_text(info, limits, needs));
  return kExitOk;
}

io::Json InfoCommand::to_json(const ModelInfo& info, const MachineLimits& limits,
                              const std::vector<ContextNeed>& needs) {
  io::Json json = {
      {"path", info.path},
      {"model_type", info.model_type},
      {"parameters", info.parameters},
      {"weight_bytes", info.weight_bytes},
      {"bits_per_weight", info.bits_per_weight},
      {"quantization", info.quantization},
      {"n_layers", info.n_layers},
      {"hidden_size", info.hidden_size},
      {"n_heads", info.n_heads},
      {"n_kv_heads", info.n_kv_heads},
      {"head_dim", info.head_dim},
      {"vocab_size", info.vocab_size},
      {"max_context", info.max_context},
      {"bytes_per_token", info.bytes_per_token},
      {"macs_per_token", info.macs_per_token},
      {"precision", info.precision == Precision::exact ? "exact" : "fast"},
      {"kernels", info.kernels},
      {"threads", info.threads},
      {"read_gb_per_s", limits.read_gb_per_s},
      {"int8_gmac_per_s", limits.int8_gmac_per_s},
      {"float32_gmac_per_s", limits.float32_gmac_per_s},
      {"decode_ceiling_tps", limits.read_gb_per_s * 1e9 / static_cast<double>(info.bytes_per_token)},
  };
  io::Json contexts = io::Json::array();
  for (const ContextNeed& need : needs) {
    contexts.push_back({{"tokens", need.tokens},
                        {"kv_bytes", need.kv_bytes},
                        {"memory_bytes", need.memory_bytes},
                        {"decode_ceiling_tps", need.decode_ceiling_tps}});
  }
  json["contexts"] = std::move(contexts);
  return json;
}

std::string InfoCommand::to_text(const ModelInfo& info, const MachineLimits& limits,
                                 const std::vector<ContextNeed>& needs) {
  std::string text = format_text("{}\n", info.path);
  const auto row = [&text](const char* name, const std::string& value) {
    text += format_text("  {:14} {}\n", name, value);
  };
  row("architecture", format_text("{}, {} layers of {}, {} heads ({} for keys and values) of {}", info.model_type,
                                  info.n_layers, info.hidden_size, info.n_heads, info.n_kv_heads, info.head_dim));
  row("parameters", with_commas(info.parameters));
  row("weights", format_text("{}, {:.2f} bits each ({})", bytes_text(static_cast<double>(info.weight_bytes)),
                             info.bits_per_weight, info.quantization));
  row("vocabulary", with_commas(info.vocab_size));
  row("context", info.max_context > 0 ? with_commas(info.max_context) + " tokens" : "not stated by the config");
  text +=
      format_text("\nThis machine, {} thread{}, {} kernels, precision {}\n", info.threads, info.threads == 1 ? "" : "s",
                  info.kernels, info.precision == Precision::exact ? "exact" : "fast");
  row("read", format_text("{:.1f} GB/s", limits.read_gb_per_s));
  row("multiply-add",
      format_text("{:.0f} G/s in int8, {:.0f} G/s in float32", limits.int8_gmac_per_s, limits.float32_gmac_per_s));
  row("decode", format_text("at most {:.1f} tokens/s: each reads {}",
                            limits.read_gb_per_s * 1e9 / static_cast<double>(info.bytes_per_token),
                            bytes_text(static_cast<double>(info.bytes_per_token))));
  if (needs.empty()) return text;
  text += format_text("\n  {:>10}  {:>16}  {:>14}  {:>18}\n", "context", "keys and values", "with weights",
                      "decode at most");
  for (const ContextNeed& need : needs) {
    text += format_text("  {:>10}  {:>16}  {:>14}  {:>9.1f} tokens/s\n", with_commas(need.tokens),
                        bytes_text(static_cast<double>(need.kv_bytes)),
                        bytes_text(static_cast<double>(need.memory_bytes)), need.decode_ceiling_tps);
  }
  return text;
}

}  // namespace

std::unique_ptr<Command> make_info_command() { return std::make_unique<InfoCommand>(); }

}  // namespace mlxlm::cli
