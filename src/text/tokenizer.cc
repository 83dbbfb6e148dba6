// mlxlm::Tokenizer: the public handle over text::TokenizerImpl.
#include "mlxlm/tokenizer.h"

#include "io/json.h"
#include "text/detokenizer.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace mlxlm {
namespace {

std::string messages_text(const std::vector<Message>& messages) {
  io::Json list = io::Json::array();
  for (const Message& message : messages) {
    const std::string where = "messages[" + std::to_string(list.size()) + "]";
    text::require_utf8(message.role, where + ".role");
    text::require_utf8(message.content, where + ".content");
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return list.dump();
}

}  // namespace

Tokenizer Tokenizer::from_folder(const std::string& folder) {
  return Tokenizer(std::make_shared<const text::TokenizerImpl>(folder));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  text::require_utf8(text, "text to encode");
  return impl_->hf().encode(text, add_special_tokens);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return impl_->decode(ids, skip_special_tokens);
}

std::vector<int32_t> Tokenizer::apply_chat_template(const std::vector<Message>& messages,
                                                    const ChatTemplateOptions& options) const {
  return encode(render_chat_template(messages, options), false);
}

std::vector<int32_t> Tokenizer::apply_chat_template_json(std::string_view messages_json,
                                                         const ChatTemplateOptions& options) const {
  return encode(render_chat_template_json(messages_json, options), false);
}

std::string Tokenizer::render_chat_template(const std::vector<Message>& messages,
                                            const ChatTemplateOptions& options) const {
  return impl_->render(messages_text(messages), options);
}

std::string Tokenizer::render_chat_template_json(std::string_view messages_json,
                                                 const ChatTemplateOptions& options) const {
  return impl_->render(messages_json, options);
}

bool Tokenizer::has_chat_template() const { return !impl_->templates().empty(); }

int32_t Tokenizer::vocab_size() const { return impl_->hf().vocab_size(); }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const { return impl_->hf().token_to_id(token); }

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  std::string token;
  if (!impl_->hf().id_to_token(id, token)) return std::nullopt;
  return token;
}

std::optional<int32_t> Tokenizer::bos_token_id() const { return impl_->bos_token_id(); }

const std::vector<int32_t>& Tokenizer::eos_token_ids() const { return impl_->eos_token_ids(); }

bool Tokenizer::has_thinking() const { return impl_->has_thinking(); }

struct StreamingDetokenizer::State {
  text::StreamingDetokenizer detokenizer;
};

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : state_(new State{text::StreamingDetokenizer(tokenizer, skip_special_tokens)}) {}
StreamingDetokenizer::~StreamingDetokenizer() = default;
StreamingDetokenizer::StreamingDetokenizer(StreamingDetokenizer&&) noexcept = default;
StreamingDetokenizer& StreamingDetokenizer::operator=(StreamingDetokenizer&&) noexcept = default;

void StreamingDetokenizer::add_token(int32_t id) { state_->detokenizer.add_token(id); }
void StreamingDetokenizer::finalize() { state_->detokenizer.finalize(); }
std::string StreamingDetokenizer::take_segment() { return state_->detokenizer.take_segment(); }
void StreamingDetokenizer::reset() { state_->detokenizer.reset(); }

}  // namespace mlxlm
