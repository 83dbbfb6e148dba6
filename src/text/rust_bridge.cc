#include "text/rust_bridge.h"

#include <algorithm>

#include "base/error.h"
#include "text/rust_values.h"

namespace mlxlm::text {
namespace {

void require_ids(std::span<const int32_t> ids) {
  const auto negative = std::find_if(ids.begin(), ids.end(), [](int32_t id) { return id < 0; });
  if (negative != ids.end()) {
    throw_invalid("token ids: expected non-negative ids, got {} at index {}", *negative, negative - ids.begin());
  }
}

}  // namespace

void check_rust(MlxlmStatus status, const RustString& error, const std::string& where, const char* action) {
  switch (status) {
    case MLXLM_OK:
      return;
    case MLXLM_RAISED:
      throw_invalid("{}: the chat template refuses these messages: {}", where, error.str());
    case MLXLM_INVALID:
      throw_invalid("{}: {}: {}", where, action, error.str());
    case MLXLM_FAULT:
      break;
  }
  throw_error(ErrorKind::internal, "{}: {}: fault in the text library: {}", where, action, error.str());
}

HfTokenizer::HfTokenizer(std::string_view json, std::string where, MlxlmPrefix prefix) : where_(std::move(where)) {
  RustString error;
  MlxlmTokenizer* handle = nullptr;
  check_rust(mlxlm_tokenizer_new(json.data(), json.size(), prefix, &handle, &error), error, where_,
             "not a usable tokenizer.json");
  handle_.reset(handle);
}

std::vector<int32_t> HfTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  RustString error;
  RustIds ids;
  check_rust(mlxlm_tokenizer_encode(handle_.get(), text.data(), text.size(), add_special_tokens, &ids, &error), error,
             where_, "encoding text");
  return std::vector<int32_t>(ids.data, ids.data + ids.size);
}

std::string HfTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  require_ids(ids);
  const std::vector<uint32_t> unsigned_ids(ids.begin(), ids.end());
  RustString error;
  RustString text;
  check_rust(mlxlm_tokenizer_decode(handle_.get(), unsigned_ids.data(), unsigned_ids.size(), skip_special_tokens, &text,
                                    &error),
             error, where_, "decoding tokens");
  return text.str();
}

bool HfTokenizer::id_to_token(int32_t id, std::string& token) const {
  if (id < 0) return false;
  token.resize(std::max<size_t>(token.capacity(), 64));  // most tokens fit at the first try
  for (;;) {
    const int64_t size =
        mlxlm_tokenizer_id_to_token(handle_.get(), static_cast<uint32_t>(id), token.data(), token.size());
    if (size < 0) return false;
    const bool complete = static_cast<size_t>(size) <= token.size();
    token.resize(static_cast<size_t>(size));
    if (complete) return true;
  }
}

std::optional<int32_t> HfTokenizer::token_to_id(std::string_view token) const {
  const int64_t id = mlxlm_tokenizer_token_to_id(handle_.get(), token.data(), token.size());
  if (id < 0) return std::nullopt;
  return static_cast<int32_t>(id);
}

bool HfTokenizer::is_special(int32_t id) const {
  return id >= 0 && mlxlm_tokenizer_is_special(handle_.get(), static_cast<uint32_t>(id)) != 0;
}

int32_t HfTokenizer::vocab_size() const { return static_cast<int32_t>(mlxlm_tokenizer_vocab_size(handle_.get())); }

std::string HfTokenizer::decoder_json() const {
  RustString error;
  RustString json;
  check_rust(mlxlm_tokenizer_decoder_json(handle_.get(), &json, &error), error, where_, "reading the decoder");
  return json.str();
}

JinjaTemplate::JinjaTemplate(std::string_view source, std::string where) : where_(std::move(where)) {
  RustString error;
  MlxlmTemplate* handle = nullptr;
  check_rust(mlxlm_template_new(source.data(), source.size(), &handle, &error), error, where_,
             "the chat template does not compile");
  handle_.reset(handle);
}

std::string JinjaTemplate::render(std::string_view variables_json, std::optional<int64_t> fixed_time) const {
  const MlxlmClock clock{fixed_time.has_value(), fixed_time.value_or(0)};
  RustString error;
  RustString text;
  check_rust(mlxlm_template_render(handle_.get(), variables_json.data(), variables_json.size(), clock, &text, &error),
             error, where_, "the chat template failed");
  return text.str();
}

}  // namespace mlxlm::text
