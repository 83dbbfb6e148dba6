// Random inserts, removals, cancellations and memory pressure from several threads on one model: no fault, the right
// tokens, and every block returned at the end. MLXLM_SOAK_SECONDS sets how long (docs/reproducibility.md has the long
// run); it is meant to run under the sanitizers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "engine/model_impl.h"
#include "properties/random_requests.h"
#include "support/random_model.h"

namespace mlxlm::test {
namespace {

using Clock = std::chrono::steady_clock;

double soak_seconds() {
  const char* text = std::getenv("MLXLM_SOAK_SECONDS");
  return text != nullptr ? std::strtod(text, nullptr) : 5;
}

constexpr uint64_t kRequests = 24;

// ThreadSanitizer does not see the synchronisation inside Rust code that is not instrumented: no grammars there.
RandomRequest soak_request(uint64_t index) {
  RandomRequest request = random_request(index);
  if (std::getenv("MLXLM_SOAK_NO_GRAMMAR") != nullptr) request.regex.clear();
  return request;
}

/// A request on its way through a BatchGenerator.
struct Running {
  uint64_t index = 0;
  std::unique_ptr<Calls> calls = std::make_unique<Calls>();
  std::stop_source stop;
  bool stopped = false;
  Outcome outcome;
};

/// One thread's generator, with requests that come and go.
class Worker {
 public:
  Worker(const Loaded& loaded, const Loaded& draft, const std::vector<Outcome>& expected, uint32_t seed)
      : loaded_(loaded),
        draft_(draft),
        expected_(expected),
        dice_(seed),
        batch_(loaded.model, loaded.tokenizer,
               {.completion_batch_size = 4, .kv_bytes = loaded.model.kv_bytes(64) * 9, .keep_caches = seed % 2 == 0}) {}

  void run_until(Clock::time_point end) {
    while (Clock::now() < end) {
      if (running_.size() < 9 && chance(0.5)) insert();
      if (!running_.empty() && chance(0.03)) remove();
      if (!running_.empty() && chance(0.03)) cancel();
      if (!running_.empty() && chance(0.05)) copy_cache();
      if (chance(0.02)) stream_a_little();
      step();
    }
    batch_.close();
  }

  int64_t checked() const { return checked_; }
  const std::string& fault() const { return fault_; }

 private:
  bool chance(double p) { return std::generate_canonical<double, 32>(dice_) < p; }
  std::map<int64_t, Running>::iterator any() {
    return std::next(running_.begin(), static_cast<std::ptrdiff_t>(dice_() % running_.size()));
  }

  void insert() {
    Running r;
    r.index = dice_() % kRequests;
    GenerateOptions options = options_for(soak_request(r.index), loaded_.tokenizer, *r.calls);
    options.reuse_prefix = chance(0.7);
    options.cancel = r.stop.get_token();
    options.prefill_step_size = static_cast<int>(1 + dice_() % 90);
    if (chance(0.3)) options.speculation = {.prompt_lookup = true};
    if (chance(0.1)) options.speculation = {.draft_model = draft_.model};
    const int64_t uid = batch_.insert(soak_request(r.index).prompt, options);
    running_.emplace(uid, std::move(r));
  }

  void remove() {
    const auto it = any();
    batch_.remove(it->first);
    running_.erase(it);
  }

  void cancel() {
    Running& r = any()->second;
    r.stop.request_stop();
    r.stopped = true;
  }

  void copy_cache() {
    PromptCache copy = batch_.extract_cache(any()->first);
    copy.trim(static_cast<int64_t>(dice_() % 70));
  }

  // A stream beside the batch that is dropped in the middle.
  void stream_a_little() {
    Calls calls;
    const RandomRequest request = soak_request(dice_() % kRequests);
    const GenerateOptions options = options_for(request, loaded_.tokenizer, calls);
    int tokens = 0;
    for (const auto& r : stream_generate(loaded_.model, loaded_.tokenizer, request.prompt, options)) {
      if (r.finish_reason || ++tokens == 4) break;
    }
  }

  void step() {
    for (BatchResponse& r : batch_.next().responses) {
      const auto it = running_.find(r.uid);
      if (it == running_.end()) continue;
      Running& running = it->second;
      if (r.error && fault_.empty()) fault_ = soak_request(running.index).describe() + ": " + r.error->what();
      if (r.response.finish_reason != "cancelled") add(running.outcome, r.response);
      if (!r.response.finish_reason) continue;
      if (!running.stopped && !r.error) check(running);
      running_.erase(it);
    }
  }

  void check(Running& running) {
    running.outcome.calls = *running.calls;
    ++checked_;
    if (running.outcome == expected_[running.index] || !fault_.empty()) return;
    fault_ = "not what it gives alone: " + soak_request(running.index).describe();
  }

  const Loaded& loaded_;
  const Loaded& draft_;
  const std::vector<Outcome>& expected_;
  std::mt19937 dice_;
  std::map<int64_t, Running> running_;
  BatchGenerator batch_;
  int64_t checked_ = 0;
  std::string fault_;
};

TEST(Soak, ManyThreadsOneModel) {
  io::Json config = tiny_config("llama");
  config["vocab_size"] = 256;
  config["head_dim"] = 32;
  config["max_position_embeddings"] = 2048;
  config["eos_token_id"] = 3;
  const std::string folder = write_random_model({.config = config, .bits = 4, .dtype = DType::bf16});
  {
    const Loaded loaded = load(folder, {.threads = 2, .prefix_cache_bytes = 1 << 20});
    const Loaded draft = load(folder, {.threads = 1});
    std::vector<Outcome> expected(kRequests);
    for (uint64_t i = 0; i < kRequests; ++i) {
      const RandomRequest request = soak_request(i);
      const GenerateOptions options = options_for(request, loaded.tokenizer, expected[i].calls);
      for (const auto& r : stream_generate(loaded.model, loaded.tokenizer, request.prompt, options)) {
        add(expected[i], r);
      }
    }
    std::vector<std::unique_ptr<Worker>> workers;
    for (uint32_t t = 0; t < 3; ++t) workers.push_back(std::make_unique<Worker>(loaded, draft, expected, t));
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(soak_seconds()));
    {
      std::vector<std::jthread> threads;
      for (auto& worker : workers) threads.emplace_back([&worker, end] { worker->run_until(end); });
    }
    int64_t checked = 0;
    for (const auto& worker : workers) {
      EXPECT_EQ(worker->fault(), "");
      checked += worker->checked();
    }
    EXPECT_GT(checked, 0);
    workers.clear();
    engine::PrefixCache& prefixes = loaded.model.impl().prefix_cache();
    prefixes.release(prefixes.bytes());
    EXPECT_EQ(loaded.model.impl().executor().kv_pool().bytes_in_use(), 0);
    EXPECT_EQ(draft.model.impl().executor().kv_pool().bytes_in_use(), 0);
    std::printf("%lld requests checked in %.0f s\n", static_cast<long long>(checked), soak_seconds());
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mlxlm::test
