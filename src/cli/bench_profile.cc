#include "cli/bench_profile.h"

#include <algorithm>

#include "base/format.h"

namespace mlxlm::cli {

using nn::PassPart;

void PassCosts::add_product(const nn::Executor& executor, PassPart part, const Matrix& w, int64_t rows) {
  Part& p = parts[static_cast<size_t>(part)];
  const bool int8 = w.quantized() && !executor.exact();
  p.bytes += static_cast<double>(w.bytes());
  (int8 ? p.int8_macs : p.float32_macs) += static_cast<double>(w.rows * w.cols * rows);
}

void PassCosts::add_pass(const nn::Executor& executor, int64_t sequences, int64_t depth, int64_t tokens, int64_t rows) {
  const int64_t all = sequences * tokens;
  for (const nn::LayerWeights& layer : executor.weights().layers) {
    for (const nn::Linear* l : {&layer.q, &layer.k, &layer.v}) add_product(executor, PassPart::qkv, l->w, all);
    add_product(executor, PassPart::output, layer.o.w, all);
    for (const nn::Linear* l : {&layer.gate, &layer.up}) add_product(executor, PassPart::gate_up, l->w, all);
    add_product(executor, PassPart::down, layer.down.w, all);
  }
  if (rows > 0) add_product(executor, PassPart::head, executor.weights().head, rows);

  Part& attention = parts[static_cast<size_t>(PassPart::attention)];
  for (const nn::KvGroup& group : executor.kv_pool().groups()) {
    const nn::AttentionSpec& spec = executor.spec().layers[static_cast<size_t>(group.layers.front())].attention;
    const auto seen = [&](int64_t length) { return group.window > 0 ? std::min(length, group.window) : length; };
    int64_t pairs = 0;  // of a query and a key
    for (int64_t i = 1; i <= tokens; ++i) pairs += seen(depth + i);
    const auto layers = static_cast<double>(sequences) * static_cast<double>(group.layers.size());
    const auto dims = static_cast<double>(group.layout.head_dim + group.layout.value_dim);
    const auto key_bytes =
        dims * static_cast<double>(group.layout.n_kv_heads) * static_cast<double>(dtype_size(group.layout.dtype));
    attention.float32_macs += layers * dims * static_cast<double>(spec.n_heads) * static_cast<double>(pairs);
    attention.bytes += layers * key_bytes * static_cast<double>(seen(depth) + tokens);
  }
}

io::Json profile_json(const nn::PassProfile& profile, const PassCosts& costs, const MachineLimits& limits) {
  io::Json list = io::Json::array();
  for (size_t i = 0; i < nn::kPassParts; ++i) {
    const PassCosts::Part& cost = costs.parts[i];
    const double seconds = profile.seconds()[i];
    const double multiplying =
        cost.int8_macs / (limits.int8_gmac_per_s * 1e9) + cost.float32_macs / (limits.float32_gmac_per_s * 1e9);
    const double least = std::max(cost.bytes / (limits.read_gb_per_s * 1e9), multiplying);
    list.push_back({{"part", nn::kPassPartNames[i]},
                    {"seconds", seconds},
                    {"bytes", cost.bytes},
                    {"macs", cost.int8_macs + cost.float32_macs},
                    {"share_of_limit", seconds > 0 ? least / seconds : 0.0}});
  }
  return list;
}

std::string profile_text(const io::Json& parts, const std::string& title, const std::string& unit, int64_t count) {
  double total = 0;
  for (const io::Json& part : parts) total += part["seconds"].get<double>();
  std::string text = format_text("\n{:<20} {:>9}   time      GB/s   GMAC/s   of limit\n", title, "us/" + unit);
  for (const io::Json& part : parts) {
    const double seconds = part["seconds"].get<double>();
    const auto rate = [&](const char* what) { return seconds > 0 ? part[what].get<double>() / seconds * 1e-9 : 0.0; };
    const double share = part["share_of_limit"].get<double>();
    text += format_text("  {:<18} {:9.1f}  {:3.0f} %  {:8.1f} {:8.1f}      {}\n", part["part"].get<std::string>(),
                        1e6 * seconds / static_cast<double>(count), 100 * seconds / total, rate("bytes"), rate("macs"),
                        share > 0 ? format_text("{:3.0f} %", 100 * share) : "    -");
  }
  return text;
}

}  // namespace mlxlm::cli
