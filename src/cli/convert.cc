// mlxlm convert: a Hugging Face folder or a GGUF file becomes a model folder.
#include "mlxlm/convert.h"

#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "convert/new_folder.h"
#include "convert/recipes.h"

namespace mlxlm::cli {
namespace {

class ConvertCommand : public Command {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  void check() const;
  ConvertReport convert_folder(const ConvertProgress& progress, std::stop_token cancel);

  std::string hf_path_;
  std::string gguf_;
  std::string out_dir_ = "mlx_model";
  std::string shard_size_ = "5GiB";
  ConvertOptions options_;
};

void ConvertCommand::add_options(CLI::App& app) {
  OptionGroup group(app, "Conversion");
  group
      .text("--hf-path,--model", hf_path_,
            "Model folder (config.json, *.safetensors, tokenizer files), or ORG/NAME of the Hub")
      .type("DIR");
  group.text("--gguf", gguf_, "GGUF file with Q4_0, Q4_1, Q8_0, F16, BF16 or F32 weights, instead").type("FILE");
  group.text("--mlx-path", out_dir_, "The new folder").type("DIR").shown_default(out_dir_);
  group
      .text("--dtype", options_.dtype,
            "Type of what is not quantised; default: config.json's torch_dtype, else as it is")
      .type("float16|bfloat16|float32");
  group.text("--max-shard-size", shard_size_, "Largest weight file, e.g. 2GB").type("SIZE").shown_default(shard_size_);
  group.integer("--threads,-t", options_.threads, 0,
                "Threads; 0: one per core this process may use. Never changes the result");

  OptionGroup quantization(app, "Quantisation");
  quantization.flag("--quantize,-q", options_.quantize, "Quantise linear layers and embeddings");
  quantization.integer("--q-bits", options_.q_bits, 2, "Bits per weight: 2, 3, 4, 5, 6 or 8").shown_default("4");
  quantization.integer("--q-group-size", options_.q_group_size, 32, "Weights that share a scale: 32, 64 or 128")
      .shown_default("64");
  quantization.text("--q-mode", options_.q_mode, "Kind of quantisation; only affine is built")
      .type("MODE")
      .shown_default(options_.q_mode);
  quantization.text("--quant-predicate", options_.quant_predicate, "Mixed bits: more for the layers that need them")
      .type(join(conversion::recipe_names(), "|"));
  quantization.flag("--dequantize,-d", options_.dequantize, "Turn quantised weights into floats");

  static constexpr RefusedFlag kRefused[] = {
      {"--upload-repo", true, "uploads are not built yet; upload the folder with 'hf upload'"},
      {"--trust-remote-code", false, "code from a model folder is never run; leave the flag out"},
  };
  add_refused(app, kRefused);
}

void ConvertCommand::check() const {
  if (hf_path_.empty() == gguf_.empty()) {
    throw UsageError(hf_path_.empty() ? "give --hf-path DIR or --gguf FILE" : "give --hf-path or --gguf, not both");
  }
  const std::pair<bool, const char*> quantization[] = {{options_.q_bits != 0, "--q-bits"},
                                                       {options_.q_group_size != 0, "--q-group-size"},
                                                       {options_.q_mode != "affine", "--q-mode"},
                                                       {!options_.quant_predicate.empty(), "--quant-predicate"}};
  for (const auto& [given, name] : quantization) {
    if (given && !options_.quantize) throw UsageError(format_text("{} needs --quantize", name));
  }
  if (gguf_.empty()) return;
  const std::pair<bool, const char*> for_folders[] = {
      {options_.quantize, "--quantize"}, {options_.dequantize, "--dequantize"}, {!options_.dtype.empty(), "--dtype"}};
  for (const auto& [given, name] : for_folders) {
    if (given) throw UsageError(format_text("{}: a GGUF file keeps its own types; leave the flag out", name));
  }
}

ConvertReport ConvertCommand::convert_folder(const ConvertProgress& progress, std::stop_token cancel) {
  options_.progress = progress;
  conversion::check_new_folder(out_dir_);  // before anything is fetched
  return convert(resolve_model_folder(hf_path_, "", std::move(cancel)), out_dir_, options_);
}

int ConvertCommand::run() {
  check();
  if (!parse_bytes(shard_size_, options_.max_shard_bytes) || options_.max_shard_bytes < 1) {
    throw UsageError(format_text("--max-shard-size: expected a size like 2GB or 500MiB, got '{}'", shard_size_));
  }

  Interrupts interrupts(SecondInterrupt::kills);
  const StopOnInterrupt stop(interrupts);
  ProgressBar bar("Converting");
  const auto progress = [&](int64_t done, int64_t total) {
    // Unwinding removes the unfinished folder.
    if (stop.token().stop_requested()) throw_error(ErrorKind::cancelled, "convert: stopped by Ctrl-C");
    bar.update(done, total);
  };
  const ConvertReport report =
      gguf_.empty()
          ? convert_folder(progress, stop.token())
          : convert_gguf(gguf_, out_dir_, {.max_shard_bytes = options_.max_shard_bytes, .progress = progress});
  bar.clear();
  write_out(format_text("{}: {}{}, {} weights with {} parameters, {}, {:.3f} bits per weight, {} in {} file{}\n",
                        report.path, report.model_type,
                        report.architecture.empty() ? "" : format_text(" ({} in the GGUF file)", report.architecture),
                        report.tensors, with_commas(report.parameters),
                        report.quantization == "none" ? "not quantised" : report.quantization, report.bits_per_weight,
                        bytes_text(static_cast<double>(report.bytes)), report.shards, report.shards == 1 ? "" : "s"));
  if (gguf_.empty() && !options_.quantize && !options_.dequantize && report.quantization != "none") {
    write_err("mlxlm: the weights were quantised already and stay as they are; --dequantize makes floats of them\n");
  }
  return kExitOk;
}

}  // namespace

std::unique_ptr<Command> make_convert_command() { return std::make_unique<ConvertCommand>(); }

}  // namespace mlxlm::cli
