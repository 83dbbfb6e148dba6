// LanguageModel: one object that loads a model, generates, streams and chats.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlxlm/generate.h"

namespace mlxlm {

struct LanguageModelOptions {
  LoadOptions load{};
  bool mtp = false;              ///< multi-token prediction; an error on a model that has no heads for it
  int mtp_num_draft_tokens = 1;  ///< with mtp
};

/// Settings of one call. The defaults are those of vllm-mlx.
struct LanguageModelRequest {
  int max_tokens = 256;
  float temperature = 0.7f;
  float top_p = 0.9f;
  int top_k = 0;
  float min_p = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  std::vector<std::string> stop{};
  std::vector<std::shared_ptr<LogitsProcessor>> logits_processors{};  ///< applied before the penalties
  std::optional<uint64_t> seed{};
  PromptCache* prompt_cache = nullptr;  ///< not owned
  std::stop_token cancel{};
};

struct GenerationOutput {
  std::string text;
  std::vector<int32_t> tokens;  ///< the ids generated, an ending EOS included
  std::string finish_reason = "stop";
};

struct StreamingOutput {
  std::string text;  ///< the new text
  int32_t token = -1;
  bool finished = false;
  std::optional<std::string> finish_reason;  ///< in the last output
  int64_t prompt_tokens = 0;
};

/// What get_model_info tells.
struct LanguageModelInfo {
  bool loaded = false;
  std::string model_name;
  std::string model_type;  ///< empty until loaded, as is what follows
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
};

/// Loads at the first call. Safe to use from many threads.
class LanguageModel {
 public:
  explicit LanguageModel(std::string model_name, LanguageModelOptions options = {});

  /// Loads the model now. Does nothing when it is loaded.
  void load();
  GenerationOutput generate(const Prompt& prompt, const LanguageModelRequest& request = {});
  /// Calls on_output for each token; false from it ends the generation.
  void stream_generate(const Prompt& prompt, const LanguageModelRequest& request,
                       const std::function<bool(const StreamingOutput&)>& on_output);
  /// Renders the messages with the model's chat template, or as lines "role: content" where it has none.
  GenerationOutput chat(const std::vector<Message>& messages, const LanguageModelRequest& request = {},
                        const ChatTemplateOptions& chat_options = {});
  /// The same for messages as a JSON array of objects, which may hold tool calls.
  GenerationOutput chat_json(std::string_view messages_json, const LanguageModelRequest& request = {},
                             const ChatTemplateOptions& chat_options = {});
  LanguageModelInfo get_model_info() const;
  /// "<LanguageModel model=NAME status=loaded>"
  std::string repr() const;

  const Model& model();          ///< loads first
  const Tokenizer& tokenizer();  ///< loads first

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mlxlm
