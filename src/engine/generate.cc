// stream_generate and generate: one sequence in a scheduler of its own.
#include <chrono>

#include "base/error.h"
#include "base/philox.h"
#include "engine/request.h"
#include "engine/response_builder.h"
#include "engine/scheduler.h"

namespace mlxlm {

struct TokenStream::State {
  State(const Model& model, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
        const GenerateOptions& options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void advance();  // the next response, or done
  const GenerationResponse& response() const { return responses_.response(); }
  GenerationResponse take_response() { return responses_.take(); }

  bool done = false;

 private:
  bool take_token();
  bool stopped() const { return interrupted_ || cancel_.stop_requested(); }
  bool deadline_passed() const { return deadline_ && std::chrono::steady_clock::now() >= *deadline_; }

  Model model_;
  Tokenizer tokenizer_;
  std::stop_token cancel_;
  std::function<bool()> interrupted_check_;  // sets interrupted_
  bool interrupted_ = false;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  uint64_t seed_;
  std::unique_ptr<PromptCache> own_cache_;
  engine::ResponseBuilder responses_;
  engine::Scheduler scheduler_;
  int64_t id_ = 0;
  bool finished_ = false;  // the last response has been made
};

TokenStream::State::State(const Model& model, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                          const GenerateOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      cancel_(options.cancel),
      interrupted_check_(
          [this, asked = options.interrupted] { return interrupted_ = interrupted_ || (asked && asked()); }),
      deadline_(options.deadline),
      seed_(options.seed ? *options.seed : random_seed()),
      own_cache_(options.prompt_cache != nullptr ? nullptr : std::make_unique<PromptCache>(model, options.cache)),
      responses_(&tokenizer_, options, static_cast<int64_t>(prompt.size()), seed_),
      scheduler_(model.shared_impl(), {}) {
  PromptCache::State& cache = (own_cache_ ? *own_cache_ : *options.prompt_cache).state();
  const size_t before = cache.tokens.size();
  cache.tokens.insert(cache.tokens.end(), prompt.begin(), prompt.end());
  try {
    id_ = scheduler_.add(engine::make_request(model, options, seed_, cache));
  } catch (...) {
    cache.tokens.resize(before);
    throw;
  }
}

TokenStream::State::~State() = default;

// False when the caller asked to stop before there was a token.
bool TokenStream::State::take_token() {
  while (!stopped() && !deadline_passed()) {
    const std::vector<engine::Emission>* emissions = nullptr;
    try {
      emissions = &scheduler_.step(CancelCheck(cancel_, &interrupted_check_));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::cancelled) throw;
      continue;
    }
    if (emissions->empty()) continue;
    if (emissions->front().error) std::rethrow_exception(emissions->front().error);
    responses_.add(emissions->front());
    return true;
  }
  return false;
}

void TokenStream::State::advance() {
  if (finished_) {
    done = true;
    return;
  }
  try {
    if (!take_token()) responses_.end(stopped() ? "cancelled" : "deadline");
  } catch (...) {
    finished_ = true;
    scheduler_.remove(id_);
    throw;
  }
  finished_ = response().finish_reason.has_value();
  if (finished_) scheduler_.remove(id_);  // the cache is the caller's again
}

TokenStream::TokenStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;

std::optional<GenerationResponse> TokenStream::next() {
  state_->advance();
  if (state_->done) return std::nullopt;
  return state_->take_response();
}

TokenStream::iterator TokenStream::begin() {
  state_->advance();
  return iterator(this);
}

TokenStream::iterator::reference TokenStream::iterator::operator*() const { return stream_->state_->response(); }

TokenStream::iterator& TokenStream::iterator::operator++() {
  stream_->state_->advance();
  return *this;
}

bool TokenStream::iterator::at_end() const { return stream_ == nullptr || stream_->state_->done; }

TokenStream stream_generate(const Model& model, const Tokenizer& tokenizer, const Prompt& prompt,
                            const GenerateOptions& options) {
  const std::vector<int32_t> ids = engine::prompt_ids(tokenizer, prompt);
  engine::check_generate_options(model, ids, options);
  return TokenStream(std::make_unique<TokenStream::State>(model, tokenizer, ids, options));
}

std::string generate(const Model& model, const Tokenizer& tokenizer, const Prompt& prompt,
                     const GenerateOptions& options) {
  std::string text;
  for (const GenerationResponse& response : stream_generate(model, tokenizer, prompt, options)) text += response.text;
  return text;
}

}  // namespace mlxlm
