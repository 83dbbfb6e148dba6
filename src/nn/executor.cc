#include "nn/executor.h"

#include <algorithm>

#include "base/error.h"
#include "base/float_control.h"
#include "nn/aligned_buffer.h"
#include "nn/attention.h"
#include "nn/products.h"
#include "nn/rope.h"

namespace mlxlm::nn {
namespace {

DType kv_type(bool exact, DType checkpoint) {
  if (exact) return DType::f32;
  return checkpoint == DType::f32 ? DType::f16 : checkpoint;
}

}  // namespace

/// What one pass takes of a span: all of it, or the part before or after the sequence's first quantised query.
struct Executor::Piece {
  const KvSequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  Rows rows = Rows::none;
  int64_t position = 0;  // of the first token
  bool being_coded = false;

  int64_t rows_wanted() const {
    return rows == Rows::none ? 0 : rows == Rows::last ? 1 : static_cast<int64_t>(tokens.size());
  }
};

/// Buffers of a pass, kept between passes. T: tokens of the pass.
struct Executor::Workspace {
  AlignedBuffer<float> x;         // [T, hidden] the residual stream
  AlignedBuffer<float> h;         // [T, hidden] normed input of a block
  AlignedBuffer<float> r;         // [T, hidden] output of a block, not yet added to x
  AlignedBuffer<float> q, mixed;  // [T, n_heads · head_dim]
  AlignedBuffer<float> k, v;      // [T, n_kv_heads · head_dim]
  AlignedBuffer<float> gate, up;  // [T, intermediate]
  AlignedBuffer<float> wanted;    // [rows wanted, hidden]
  struct Angles {
    const RopeSpec* rope = nullptr;
    AlignedBuffer<float> cos, sin;  // [T, half]
  };
  std::vector<Angles> angles;  // one per distinct rope
  std::vector<size_t> angles_of_layer;
  std::vector<AttentionPlan> plans;  // one per cache group
  std::vector<SpanPlace> places;
  std::vector<int64_t> positions;           // [T]
  std::vector<int64_t> wanted_rows;         // rows of the pass whose logits are wanted
  std::vector<Piece> pieces, later_pieces;  // see plan_stages
  std::vector<float> logits, later_logits;  // of the two passes of a cut span
  std::unique_ptr<ProductRunner> products;
};

/// One forward pass: the steps of the model in order.
class Executor::Pass {
 public:
  Pass(Executor& executor, std::span<const Piece> pieces)
      : e_(executor),
        pieces_(pieces),
        ws_(*executor.workspace_),
        kernels_(executor.kernels_),
        hidden_(executor.spec_.hidden_size) {
    if (e_.profile_ != nullptr) e_.profile_->start();
    place_pieces();
    reserve();
  }

  void run(std::vector<float>& logits, const CancelCheck& cancel) {
    embed();
    lap(PassPart::setup);
    for (size_t i = 0; i < e_.spec_.layers.size(); ++i) {
      if (cancel.requested()) throw Error(ErrorKind::cancelled, "the forward pass was cancelled");
      layer(i);
    }
    head(logits);
    lap(PassPart::head);
  }

 private:
  void lap(PassPart part) {
    if (e_.profile_ != nullptr) e_.profile_->lap(part);
  }
  void place_pieces();
  void reserve();
  void embed();
  void layer(size_t index);
  /// Rotates queries and keys, stores keys and values, and attends. `next`: the products that follow.
  void attend(size_t index, std::span<const Product> next);
  void position_and_store(size_t index, int64_t lo, int64_t hi);
  void add_residual(int64_t lo, int64_t hi);
  void norm_rows(const Norm& norm, const float* in, float* out, int64_t lo, int64_t hi) const;
  void head(std::vector<float>& logits);

  Executor& e_;
  std::span<const Piece> pieces_;
  Workspace& ws_;
  const Kernels& kernels_;
  const int64_t hidden_;
  int64_t tokens_ = 0;
  const Norm* residual_norm_ = nullptr;  // norm of ws_.r before it is added; null: plain
  bool residual_pending_ = false;        // ws_.r waits to be added to ws_.x
};

void Executor::Pass::place_pieces() {
  ws_.places.clear();
  ws_.positions.clear();
  for (const Piece& piece : pieces_) {
    const auto n = static_cast<int64_t>(piece.tokens.size());
    ws_.places.push_back({piece.sequence, tokens_, n, piece.position, piece.being_coded});
    for (int64_t i = 0; i < n; ++i) ws_.positions.push_back(piece.position + i);
    tokens_ += n;
  }
}

void Executor::Pass::reserve() {
  const auto t = static_cast<size_t>(tokens_);
  int64_t q = 0, kv = 0, mlp = 0;
  for (const LayerSpec& layer : e_.spec_.layers) {
    q = std::max(q, layer.attention.q.out);
    kv = std::max(kv, layer.attention.k.out);
    mlp = std::max(mlp, layer.mlp.gate.out);
  }
  for (auto* buffer : {&ws_.x, &ws_.h, &ws_.r}) buffer->reserve(t * static_cast<size_t>(hidden_));
  for (auto* buffer : {&ws_.q, &ws_.mixed}) buffer->reserve(t * static_cast<size_t>(q));
  for (auto* buffer : {&ws_.k, &ws_.v}) buffer->reserve(t * static_cast<size_t>(kv));
  for (auto* buffer : {&ws_.gate, &ws_.up}) buffer->reserve(t * static_cast<size_t>(mlp));
  for (size_t g = 0; g < ws_.plans.size(); ++g) {
    const auto first_layer = static_cast<size_t>(e_.kv_pool_->groups()[g].layers.front());
    const AttentionSpec& a = e_.spec_.layers[first_layer].attention;
    ws_.plans[g].build(g, ws_.places, a.n_heads / a.n_kv_heads);
  }
  for (Workspace::Angles& angles : ws_.angles) {
    const size_t half = angles.rope->inv_freq.size();
    angles.cos.reserve(t * half);
    angles.sin.reserve(t * half);
    ws_.products->rows(tokens_, [&](int64_t lo, int64_t hi) {
      const std::span positions(ws_.positions.data() + lo, static_cast<size_t>(hi - lo));
      const auto first = static_cast<size_t>(lo) * half;
      rope_angles(*angles.rope, positions, angles.cos.get() + first, angles.sin.get() + first);
    });
  }
}

void Executor::Pass::embed() {
  int64_t row = 0;
  for (const Piece& piece : pieces_) {
    for (const int32_t id : piece.tokens) {
      float* x = ws_.x.get() + row++ * hidden_;
      kernels_.dequantize_row(e_.weights_.embedding, id, x);
      if (e_.spec_.embedding_scale != 1.0f) kernels_.scale(x, e_.spec_.embedding_scale, hidden_);
    }
  }
}

void Executor::Pass::norm_rows(const Norm& norm, const float* in, float* out, int64_t lo, int64_t hi) const {
  for (int64_t t = lo; t < hi; ++t) {
    kernels_.rms_norm(in + t * hidden_, norm.weight.data(), out + t * hidden_, hidden_, norm.eps);
  }
}

void Executor::Pass::add_residual(int64_t lo, int64_t hi) {
  if (!residual_pending_) return;
  if (residual_norm_ != nullptr) norm_rows(*residual_norm_, ws_.r.get(), ws_.r.get(), lo, hi);
  kernels_.add(ws_.x.get() + lo * hidden_, ws_.r.get() + lo * hidden_, (hi - lo) * hidden_);
}

void Executor::Pass::position_and_store(size_t index, int64_t lo, int64_t hi) {
  const AttentionSpec& spec = e_.spec_.layers[index].attention;
  const LayerWeights& w = e_.weights_.layers[index];
  const Workspace::Angles& angles = ws_.angles[ws_.angles_of_layer[index]];
  const auto half = static_cast<int64_t>(spec.rope.inv_freq.size());
  const AttentionPlan& plan = ws_.plans[e_.group_of_layer_[index]];
  const int64_t d = spec.head_dim;
  for (int64_t t = lo; t < hi; ++t) {
    float* q = ws_.q.get() + t * spec.q.out;
    float* k = ws_.k.get() + t * spec.k.out;
    for (int64_t head = 0; w.q_norm.present() && head < spec.n_heads; ++head) {
      kernels_.rms_norm(q + head * d, w.q_norm.weight.data(), q + head * d, d, w.q_norm.eps);
    }
    for (int64_t head = 0; w.k_norm.present() && head < spec.n_kv_heads; ++head) {
      kernels_.rms_norm(k + head * d, w.k_norm.weight.data(), k + head * d, d, w.k_norm.eps);
    }
    const float* cos = angles.cos.get() + t * half;
    const float* sin = angles.sin.get() + t * half;
    kernels_.rope(q, spec.n_heads, d, half, cos, sin, spec.rope.interleaved, spec.scale);
    kernels_.rope(k, spec.n_kv_heads, d, half, cos, sin, spec.rope.interleaved, 1.0f);
    plan.store(e_.index_in_group_[index], t, k, ws_.v.get() + t * spec.v.out, kernels_);
  }
}

void Executor::Pass::attend(size_t index, std::span<const Product> next) {
  AttentionPlan& plan = ws_.plans[e_.group_of_layer_[index]];
  const AttentionPlan::Layer layer = {ws_.q.get(), ws_.mixed.get(), e_.index_in_group_[index],
                                      e_.spec_.layers[index].attention.softcap};
  ProductRunner& products = *ws_.products;
  plan.begin();
  products.tasks(
      tokens_, [&](int64_t lo, int64_t hi) { position_and_store(index, lo, hi); }, plan.tasks(),
      [&](int64_t i, int thread) { plan.run_task(i, layer, kernels_, e_.pool_.size(), products.scratch(thread)); },
      [&](int64_t i, int64_t step) { return plan.fetch_part(i, step, layer); }, next);
}

void Executor::Pass::layer(size_t index) {
  const LayerSpec& spec = e_.spec_.layers[index];
  const LayerWeights& w = e_.weights_.layers[index];
  ProductRunner& products = *ws_.products;
  const auto plain = [](const Linear& l, float* out) { return Product{&l.w, &l.bias, out, l.w.rows}; };

  const Product qkv[] = {plain(w.q, ws_.q.get()), plain(w.k, ws_.k.get()), plain(w.v, ws_.v.get())};
  products.run(ws_.h.get(), tokens_, hidden_, qkv, [&](int64_t lo, int64_t hi) {
    add_residual(lo, hi);
    norm_rows(w.attn_norm, ws_.x.get(), ws_.h.get(), lo, hi);
  });
  lap(PassPart::qkv);
  const Product o[] = {plain(w.o, ws_.r.get())};
  attend(index, o);
  lap(PassPart::attention);
  products.run(ws_.mixed.get(), tokens_, spec.attention.o.in, o, [](int64_t, int64_t) {});
  lap(PassPart::output);

  residual_pending_ = true;
  residual_norm_ = w.attn_post_norm.present() ? &w.attn_post_norm : nullptr;
  const Product gate_up[] = {plain(w.gate, ws_.gate.get()), plain(w.up, ws_.up.get())};
  products.run(ws_.h.get(), tokens_, hidden_, gate_up, [&](int64_t lo, int64_t hi) {
    add_residual(lo, hi);
    norm_rows(w.mlp_norm, ws_.x.get(), ws_.h.get(), lo, hi);
  });
  lap(PassPart::gate_up);
  const int64_t inner = spec.mlp.gate.out;
  const Product down[] = {plain(w.down, ws_.r.get())};
  products.run(ws_.gate.get(), tokens_, inner, down, [&](int64_t lo, int64_t hi) {
    kernels_.gated(spec.mlp.activation, ws_.gate.get() + lo * inner, ws_.up.get() + lo * inner,
                   ws_.gate.get() + lo * inner, (hi - lo) * inner);
  });
  lap(PassPart::down);
  residual_norm_ = w.mlp_post_norm.present() ? &w.mlp_post_norm : nullptr;
}

void Executor::Pass::head(std::vector<float>& logits) {
  std::vector<int64_t>& wanted = ws_.wanted_rows;
  wanted.clear();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const int64_t end = ws_.places[i].row + ws_.places[i].count;
    for (int64_t row = end - pieces_[i].rows_wanted(); row < end; ++row) wanted.push_back(row);
  }
  const auto n = static_cast<int64_t>(wanted.size());
  const int64_t vocab = e_.spec_.vocab_size;
  logits.resize(static_cast<size_t>(n * vocab));
  if (n == 0) return;
  float* in = ws_.wanted.reserve(static_cast<size_t>(n * hidden_));
  const Product head[] = {{&e_.weights_.head, nullptr, logits.data(), vocab}};
  ws_.products->run(in, n, hidden_, head, [&](int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
      const int64_t row = wanted[static_cast<size_t>(i)];
      add_residual(row, row + 1);
      kernels_.rms_norm(ws_.x.get() + row * hidden_, e_.weights_.final_norm.weight.data(), in + i * hidden_, hidden_,
                        e_.weights_.final_norm.eps);
    }
  });
  if (e_.spec_.logit_softcap > 0) kernels_.softcap(logits.data(), e_.spec_.logit_softcap, n * vocab);
}

Executor::Executor(ModelSpec spec, Weights weights, const ExecutorOptions& options)
    : spec_(std::move(spec)),
      weights_(std::move(weights)),
      kernels_(select_kernels(options.isa)),
      exact_(options.exact),
      kv_pool_(std::make_shared<KvPool>(make_kv_groups(spec_, kv_type(options.exact, weights_.float_type)),
                                        options.kv_bytes)),
      group_of_layer_(spec_.layers.size()),
      index_in_group_(spec_.layers.size()),
      pool_(options.threads),
      workspace_(std::make_unique<Workspace>()) {
  const auto& groups = kv_pool_->groups();
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].layers.size(); ++i) {
      const auto layer = static_cast<size_t>(groups[g].layers[i]);
      group_of_layer_[layer] = g;
      index_in_group_[layer] = static_cast<int64_t>(i);
    }
  }
  Workspace& ws = *workspace_;
  ws.plans.resize(groups.size());
  for (const LayerSpec& layer : spec_.layers) {
    const RopeSpec& rope = layer.attention.rope;
    const auto same = [&](const Workspace::Angles& a) { return *a.rope == rope; };
    auto it = std::find_if(ws.angles.begin(), ws.angles.end(), same);
    if (it == ws.angles.end()) {
      ws.angles.emplace_back().rope = &rope;
      it = ws.angles.end() - 1;
    }
    ws.angles_of_layer.push_back(static_cast<size_t>(it - ws.angles.begin()));
  }
  ws.products = std::make_unique<ProductRunner>(kernels_, pool_, exact_);
}

Executor::~Executor() = default;

void Executor::set_profile(PassProfile* profile) {
  const std::lock_guard lock(mutex_);
  profile_ = profile;
}

KvSequence Executor::new_sequence(const KvOptions& options) const {
  check_kv_options(options, kv_pool_->groups());
  return KvSequence(kv_pool_, options);
}

int64_t Executor::kv_bytes(int64_t tokens, const KvOptions& options) const {
  const KvSequence sequence = new_sequence(options);
  const auto& groups = kv_pool_->groups();
  const auto bytes = [&](int64_t length, bool coded) {
    int64_t sum = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      int64_t blocks = (length + kKvBlockTokens - 1) / kKvBlockTokens;
      if (const int64_t window = sequence.window(g); window > 0) {
        // The kept start, the window's own positions, a block to roll back, and the rest of two blocks.
        const int64_t kept = (sequence.keep(g) + kKvBlockTokens - 1) / kKvBlockTokens;
        blocks = std::min(blocks, kept + (window + kKvBlockTokens - 1) / kKvBlockTokens + 3);
      }
      sum += blocks * groups[g].block_bytes(coded ? options.bits : 0, options.group_size);
    }
    return sum;
  };
  // Where codes take the floats' place, both are held for a moment.
  const int64_t start = sequence.quantized_from();
  return tokens <= start ? bytes(tokens, false) : bytes(start, false) + bytes(tokens, true);
}

void Executor::forward(std::span<const Span> spans, std::vector<float>& logits, const CancelCheck& cancel) {
  for (const Span& span : spans) {
    if (span.tokens.empty()) throw_invalid("a span of a forward pass has no tokens");
    for (const int32_t id : span.tokens) {
      if (id < 0 || id >= spec_.vocab_size) {
        throw_invalid("token id {} is outside the model's vocabulary of {}", id, spec_.vocab_size);
      }
    }
  }
  if (spans.empty()) {
    logits.clear();
    return;
  }
  const std::lock_guard lock(mutex_);
  const FloatControl float_control;
  try {
    for (const Span& span : spans) span.sequence->prepare(static_cast<int64_t>(span.tokens.size()));
    plan_stages(spans);
    run_stages(spans, logits, cancel);
  } catch (...) {
    for (const Span& span : spans) span.sequence->abandon();
    throw;
  }
  for (const Span& span : spans) span.sequence->commit(static_cast<int64_t>(span.tokens.size()));
}

// Cuts each span where its sequence's keys and values become codes; the second part is for a second pass. Spans that
// begin there or beyond are converted here.
void Executor::plan_stages(std::span<const Span> spans) {
  Workspace& ws = *workspace_;
  ws.pieces.clear();
  ws.later_pieces.clear();
  for (const Span& span : spans) {
    KvSequence& s = *span.sequence;
    const auto n = static_cast<int64_t>(span.tokens.size());
    const int64_t first = s.length(), from = s.quantized_from();
    const bool crosses = !s.quantized() && first + n > from;
    if (!crosses || first >= from) {
      if (crosses) s.convert(first, kernels_, pool_);
      ws.pieces.push_back({&s, span.tokens, span.rows, first, crosses});
      continue;
    }
    const auto cut = static_cast<size_t>(from - first);
    const Rows before = span.rows == Rows::all ? Rows::all : Rows::none;
    ws.pieces.push_back({&s, span.tokens.first(cut), before, first, false});
    ws.later_pieces.push_back({&s, span.tokens.subspan(cut), span.rows, from, true});
  }
}

void Executor::run_stages(std::span<const Span> spans, std::vector<float>& logits, const CancelCheck& cancel) {
  Workspace& ws = *workspace_;
  if (ws.later_pieces.empty()) {
    Pass(*this, ws.pieces).run(logits, cancel);
    return;
  }
  Pass(*this, ws.pieces).run(ws.logits, cancel);
  for (const Span& span : spans) {
    KvSequence& s = *span.sequence;
    const auto n = static_cast<int64_t>(span.tokens.size());
    const bool cut = !s.quantized() && s.length() < s.quantized_from() && s.length() + n > s.quantized_from();
    if (cut) s.convert(s.quantized_from(), kernels_, pool_);
  }
  Pass(*this, ws.later_pieces).run(ws.later_logits, cancel);
  // Back into the order of the spans.
  logits.clear();
  auto later = ws.later_pieces.begin();
  auto from = ws.logits.begin(), later_from = ws.later_logits.begin();
  const auto take = [&](const Piece& piece, auto& rows) {
    const auto end = rows + piece.rows_wanted() * spec_.vocab_size;
    logits.insert(logits.end(), rows, end);
    rows = end;
  };
  for (const Piece& piece : ws.pieces) {
    take(piece, from);
    if (later != ws.later_pieces.end() && later->sequence == piece.sequence) take(*later++, later_from);
  }
}

}  // namespace mlxlm::nn
