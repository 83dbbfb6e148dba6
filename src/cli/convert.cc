// mlxlm convert: a GGUF file becomes a model folder.
#include "base/error.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "convert/gguf_convert.h"

namespace mlxlm::cli {
namespace {

constexpr const char* kOnlyGguf = "converting Hugging Face checkpoints is not built yet; use mlx_lm.convert, or --gguf";

class ConvertCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  std::string gguf_;
  std::string out_dir_ = "mlx_model";
};

void ConvertCommand::add_options(CLI::App& app) {
  OptionGroup group(app, "Conversion");
  group.text("--gguf", gguf_, "GGUF file with Q4_0, Q4_1, Q8_0, F16, BF16 or F32 weights").type("FILE").required();
  group.text("--mlx-path", out_dir_, "The new folder").type("DIR").shown_default(out_dir_);
  static constexpr RefusedFlag kRefused[] = {
      {"--hf-path", true, kOnlyGguf},
      {"--model", true, kOnlyGguf},
      {"--quantize,-q", false, "a GGUF file keeps its own quantisation; leave the flag out"},
      {"--q-bits", true, "a GGUF file keeps its own quantisation; leave the flag out"},
      {"--q-group-size", true, "a GGUF file keeps its own quantisation; leave the flag out"},
      {"--q-mode", true, "a GGUF file keeps its own quantisation; leave the flag out"},
      {"--quant-predicate", true, "a GGUF file keeps its own quantisation; leave the flag out"},
      {"--dtype", true, "a GGUF file keeps its own types; leave the flag out"},
      {"--dequantize,-d", false, "dequantising is not built yet; leave the flag out"},
      {"--upload-repo", true, "uploads are not built yet; leave the flag out"},
      {"--trust-remote-code", false, "code from a model folder is never run; leave the flag out"},
  };
  add_refused(app, kRefused);
}

int ConvertCommand::run() {
  Interrupts interrupts(SecondInterrupt::kills);
  const StopOnInterrupt stop(interrupts);
  ProgressBar progress("Converting");
  convert::GgufConvertOptions options;
  options.progress = [&](int64_t done, int64_t total) {
    // Unwinding removes the unfinished folder.
    if (stop.token().stop_requested()) throw_error(ErrorKind::cancelled, "convert: stopped by Ctrl-C");
    progress.update(done, total);
  };
  const convert::ConvertReport report = convert::convert_gguf(gguf_, out_dir_, options);
  progress.clear();
  write_out(format_text("{}: {} ({} in the GGUF file), {} weights with {} parameters, {}, {} in {} file{}\n",
                        report.path, report.model_type, report.architecture, report.tensors,
                        with_commas(report.parameters), report.quantization,
                        bytes_text(static_cast<double>(report.bytes)), report.shards, report.shards == 1 ? "" : "s"));
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_convert_command() { return std::make_unique<ConvertCommand>(); }

}  // namespace mlxlm::cli
