// Runs a model: spans of tokens of many sequences in, logits out.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/thread_pool.h"
#include "nn/kv_cache.h"
#include "nn/profile.h"
#include "nn/spec.h"
#include "nn/weights.h"

namespace mlxlm::nn {

struct ExecutorOptions {
  bool exact = false;    ///< float32 activations and KV instead of int8 activations and 16-bit KV
  int threads = 0;       ///< 0: one per usable core
  std::string isa{};     ///< kernel set; empty: the best
  int64_t kv_bytes = 0;  ///< budget of all keys and values; 0: what the system gives
};

/// Which rows of a span's logits are wanted.
enum class Rows : uint8_t { none, last, all };

/// Consecutive tokens of one sequence, placed after what the sequence holds. A sequence is in at most one span of a
/// pass.
struct Span {
  KvSequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  Rows rows = Rows::last;
};

/// Holds the weights, the thread pool and the KV pool of one model. Calls from many threads are served one at a time.
/// The result for a sequence depends on its own tokens only: not on threads, neighbours, chunking or instruction set.
class Executor {
 public:
  Executor(ModelSpec spec, Weights weights, const ExecutorOptions& options);
  ~Executor();

  /// One pass over all spans, without padding. `logits` becomes [rows wanted in span order, vocab_size]. Token ids must
  /// be in [0, vocab_size). On an exception the sequences are as before. Throws Error(cancelled) soon after `cancel`
  /// has been asked to stop.
  void forward(std::span<const Span> spans, std::vector<float>& logits, const CancelCheck& cancel = {});

  /// From now on the passes add their times to `profile`, which must live as long; null: to none.
  void set_profile(PassProfile* profile);

  /// An empty sequence. Throws Error(invalid_value) where the model cannot hold keys and values so.
  KvSequence new_sequence(const KvOptions& options = {}) const;
  const ModelSpec& spec() const { return spec_; }
  const Weights& weights() const { return weights_; }
  const Kernels& kernels() const { return kernels_; }
  KvPool& kv_pool() { return *kv_pool_; }
  const KvPool& kv_pool() const { return *kv_pool_; }
  const std::shared_ptr<KvPool>& shared_kv_pool() const { return kv_pool_; }
  int threads() const { return pool_.size(); }
  bool exact() const { return exact_; }
  /// The most bytes of keys and values that one sequence of `tokens` positions holds between passes, at any length up
  /// to there.
  int64_t kv_bytes(int64_t tokens, const KvOptions& options = {}) const;

 private:
  class Pass;
  struct Piece;
  struct Workspace;

  void plan_stages(std::span<const Span> spans);
  void run_stages(std::span<const Span> spans, std::vector<float>& logits, const CancelCheck& cancel);

  ModelSpec spec_;
  Weights weights_;
  const Kernels& kernels_;
  bool exact_;
  std::shared_ptr<KvPool> kv_pool_;
  std::vector<size_t> group_of_layer_;
  std::vector<int64_t> index_in_group_;
  std::mutex mutex_;  // one pass at a time: guards what follows
  ThreadPool pool_;
  std::unique_ptr<Workspace> workspace_;
  PassProfile* profile_ = nullptr;
};

}  // namespace mlxlm::nn
