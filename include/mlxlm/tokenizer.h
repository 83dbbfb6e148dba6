// Text to token ids and back, and chat templates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mlxlm {

namespace text {
class TokenizerImpl;
}

/// One turn of a conversation. For tool calls, content parts or other fields use the JSON form of apply_chat_template.
struct Message {
  std::string role;     ///< "system", "user", "assistant", or what the template knows
  std::string content;  ///< plain text
};

/// Options of apply_chat_template. JSON texts are empty for "none".
struct ChatTemplateOptions {
  bool add_generation_prompt = true;  ///< append the opening marker of the assistant's turn
  bool continue_final_message =
      false;                     ///< leave the last message open, to be continued; excludes add_generation_prompt
  std::string tools_json{};      ///< JSON array of tool definitions
  std::string documents_json{};  ///< JSON array of documents
  std::string variables_json{};  ///< JSON object of further template variables, e.g. {"enable_thinking": false}
  std::string chat_template{};   ///< template text to use instead of the model's own
};

/// A model folder's tokenizer. A cheap shared handle: copies share one immutable object, safe to use from many threads.
class Tokenizer {
 public:
  /// Reads tokenizer.json, tokenizer_config.json, chat_template.jinja and their kin from a model folder.
  static Tokenizer from_folder(const std::string& folder);

  /// add_special_tokens: let the tokenizer's post-processor add BOS and the like.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = true) const;

  /// The text of all ids at once; special tokens are rendered unless skipped. Invalid UTF-8 becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  /// Ids of the rendered conversation, encoded without added special tokens (the template writes its own BOS).
  std::vector<int32_t> apply_chat_template(const std::vector<Message>& messages,
                                           const ChatTemplateOptions& options = {}) const;
  /// The same for messages as a JSON array of objects, passed to the template as they are.
  std::vector<int32_t> apply_chat_template_json(std::string_view messages_json,
                                                const ChatTemplateOptions& options = {}) const;
  /// The rendered text itself.
  std::string render_chat_template(const std::vector<Message>& messages, const ChatTemplateOptions& options = {}) const;
  std::string render_chat_template_json(std::string_view messages_json, const ChatTemplateOptions& options = {}) const;

  bool has_chat_template() const;
  int32_t vocab_size() const;  ///< ids are in [0, vocab_size), added tokens included
  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  std::optional<int32_t> bos_token_id() const;
  const std::vector<int32_t>& eos_token_ids() const;  ///< of the tokenizer's own config, sorted
  bool has_thinking() const;                          ///< the vocabulary has think markers

  const text::TokenizerImpl& impl() const { return *impl_; }
  explicit Tokenizer(std::shared_ptr<const text::TokenizerImpl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const text::TokenizerImpl> impl_;
};

/// Streams the text of a growing list of tokens: the segments joined are what Tokenizer::decode gives for all ids at
/// once, and each is whole characters of UTF-8. Belongs to one request.
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = false);
  ~StreamingDetokenizer();
  StreamingDetokenizer(StreamingDetokenizer&&) noexcept;
  StreamingDetokenizer& operator=(StreamingDetokenizer&&) noexcept;

  void add_token(int32_t id);
  /// No more tokens: an unfinished character becomes U+FFFD.
  void finalize();
  /// The text that became known since the last call.
  std::string take_segment();
  /// Starts again with an empty list.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mlxlm
