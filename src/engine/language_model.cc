#include "mlxlm/language_model.h"

#include <mutex>

#include "base/error.h"

namespace mlxlm {

struct LanguageModel::State {
  std::string name;
  LanguageModelOptions options;
  mutable std::mutex mutex;  // guards loaded
  std::optional<Loaded> loaded;

  const Loaded& get() {
    const std::lock_guard lock(mutex);
    if (!loaded) {
      Loaded fresh = mlxlm::load(name, options.load);
      if (options.mtp) {
        throw_error(ErrorKind::unsupported,
                    "{}: mtp needs a model with multi-token-prediction heads, and {} has none; leave mtp off", name,
                    fresh.model.info().model_type);
      }
      loaded.emplace(std::move(fresh));
    }
    return *loaded;
  }
};

namespace {

GenerateOptions options_of(const LanguageModelRequest& request) {
  GenerateOptions options;
  options.max_tokens = request.max_tokens;
  options.sampler = {
      .temp = request.temperature, .top_p = request.top_p, .min_p = request.min_p, .top_k = request.top_k};
  options.logits_processors = request.logits_processors;
  LogitsProcessorOptions penalties;
  penalties.presence_penalty = request.presence_penalty;
  if (request.repetition_penalty != 1.0f) penalties.repetition_penalty = request.repetition_penalty;
  for (auto& processor : make_logits_processors(penalties)) options.logits_processors.push_back(std::move(processor));
  options.seed = request.seed;
  options.stop = request.stop;
  options.prompt_cache = request.prompt_cache;
  options.cancel = request.cancel;
  return options;
}

// For models without a chat template: a line for each message, and the assistant's turn opened.
std::string plain_chat(const std::vector<Message>& messages) {
  std::string text;
  for (const Message& message : messages) text += message.role + ": " + message.content + "\n";
  return text + "assistant:";
}

GenerationOutput collect(TokenStream stream) {
  GenerationOutput output;
  for (const GenerationResponse& r : stream) {
    output.text += r.text;
    if (r.generation_tokens > static_cast<int64_t>(output.tokens.size())) output.tokens.push_back(r.token);
    if (r.finish_reason) output.finish_reason = *r.finish_reason;
  }
  return output;
}

}  // namespace

LanguageModel::LanguageModel(std::string model_name, LanguageModelOptions options) : state_(std::make_shared<State>()) {
  if (options.mtp_num_draft_tokens < 1) {
    throw_invalid("mtp_num_draft_tokens: expected 1 or more, got {}", options.mtp_num_draft_tokens);
  }
  state_->name = std::move(model_name);
  state_->options = std::move(options);
}

void LanguageModel::load() { state_->get(); }
const Model& LanguageModel::model() { return state_->get().model; }
const Tokenizer& LanguageModel::tokenizer() { return state_->get().tokenizer; }

GenerationOutput LanguageModel::generate(const Prompt& prompt, const LanguageModelRequest& request) {
  const Loaded& loaded = state_->get();
  return collect(mlxlm::stream_generate(loaded.model, loaded.tokenizer, prompt, options_of(request)));
}

void LanguageModel::stream_generate(const Prompt& prompt, const LanguageModelRequest& request,
                                    const std::function<bool(const StreamingOutput&)>& on_output) {
  const Loaded& loaded = state_->get();
  for (const auto& r : mlxlm::stream_generate(loaded.model, loaded.tokenizer, prompt, options_of(request))) {
    if (!on_output({r.text, r.token, r.finish_reason.has_value(), r.finish_reason, r.prompt_tokens})) return;
  }
}

GenerationOutput LanguageModel::chat(const std::vector<Message>& messages, const LanguageModelRequest& request,
                                     const ChatTemplateOptions& chat_options) {
  const Tokenizer& tokenizer = state_->get().tokenizer;
  if (messages.empty()) throw_invalid("messages: expected at least one, got none");
  if (tokenizer.has_chat_template() || !chat_options.chat_template.empty()) {
    return generate(tokenizer.apply_chat_template(messages, chat_options), request);
  }
  return generate(plain_chat(messages), request);
}

GenerationOutput LanguageModel::chat_json(std::string_view messages_json, const LanguageModelRequest& request,
                                          const ChatTemplateOptions& chat_options) {
  const Tokenizer& tokenizer = state_->get().tokenizer;
  if (!tokenizer.has_chat_template() && chat_options.chat_template.empty()) {
    throw_invalid("{}: the model has no chat template; messages in JSON need one (give chat_template)", state_->name);
  }
  return generate(tokenizer.apply_chat_template_json(messages_json, chat_options), request);
}

LanguageModelInfo LanguageModel::get_model_info() const {
  const std::lock_guard lock(state_->mutex);
  LanguageModelInfo info;
  info.model_name = state_->name;
  info.loaded = state_->loaded.has_value();
  if (!info.loaded) return info;
  const ModelInfo& model = state_->loaded->model.info();
  info.model_type = model.model_type;
  info.vocab_size = model.vocab_size;
  info.hidden_size = model.hidden_size;
  info.num_layers = model.n_layers;
  info.num_heads = model.n_heads;
  return info;
}

std::string LanguageModel::repr() const {
  const LanguageModelInfo info = get_model_info();
  return format_text("<LanguageModel model={} status={}>", info.model_name, info.loaded ? "loaded" : "not loaded");
}

}  // namespace mlxlm
