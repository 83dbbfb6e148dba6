#include "text/detokenizer.h"

#include "base/error.h"
#include "text/tokenizer_impl.h"

namespace mlxlm::text {

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : StreamingDetokenizer(tokenizer.impl().hf(), tokenizer.impl().decode_plan(), skip_special_tokens) {
  kept_ = tokenizer;
}

StreamingDetokenizer::StreamingDetokenizer(const HfTokenizer& tokenizer, const DecodePlan& plan,
                                           bool skip_special_tokens)
    : tokenizer_(&tokenizer), plan_(&plan), skip_special_(skip_special_tokens), strip_left_(plan.strip_left) {}

void StreamingDetokenizer::reset() {
  first_ = true;
  strip_left_ = plan_->strip_left;
  utf8_ = Utf8Stream();
  segment_.clear();
  ids_.clear();
  given_ = 0;
}

void StreamingDetokenizer::add_token(int32_t id) {
  if (id < 0) throw_invalid("detokenizer: expected a non-negative token id, got {}", id);
  if (skip_special_ && tokenizer_->is_special(id)) return;
  if (plan_->kind == DecodePlan::Kind::whole) {
    ids_.push_back(id);
    decode_whole(false);
    return;
  }
  if (!tokenizer_->id_to_token(id, piece_)) return;
  const size_t start = segment_.size();
  if (plan_->kind == DecodePlan::Kind::byte_level) {
    bytes_.clear();
    append_byte_level(piece_, bytes_);
    utf8_.append(bytes_, segment_);
  } else {
    add_piece();
  }
  emit_from(start);
  first_ = false;
}

void StreamingDetokenizer::add_piece() {
  apply_steps(*plan_, first_, piece_);
  if (plan_->byte_fallback) {
    if (const int byte = fallback_byte(piece_); byte >= 0) {
      const char c = static_cast<char>(byte);
      utf8_.append_per_byte({&c, 1}, segment_);
      return;
    }
    utf8_.flush(segment_, true);
  }
  if (!first_) segment_ += plan_->separator;
  segment_ += piece_;
}

/// Drops what the decoder strips at the start of the text; `start` is where the new part of the segment begins.
void StreamingDetokenizer::emit_from(size_t start) {
  while (strip_left_ > 0 && segment_.size() > start) {
    if (segment_.compare(start, plan_->strip_char.size(), plan_->strip_char) != 0) {
      strip_left_ = 0;
      break;
    }
    segment_.erase(start, plan_->strip_char.size());
    --strip_left_;
  }
}

void StreamingDetokenizer::finalize() {
  if (plan_->kind == DecodePlan::Kind::whole) {
    decode_whole(true);
    return;
  }
  const size_t start = segment_.size();
  utf8_.flush(segment_, plan_->kind == DecodePlan::Kind::pieces);
  emit_from(start);
}

void StreamingDetokenizer::decode_whole(bool final) {
  std::string text = tokenizer_->decode(ids_, skip_special_);
  size_t safe = text.size();
  if (!final) {  // what ends in U+FFFD may still become a character
    while (std::string_view(text).substr(0, safe).ends_with(kReplacement)) safe -= kReplacement.size();
  }
  if (safe <= given_) return;
  segment_.append(text, given_, safe - given_);
  given_ = safe;
}

std::string StreamingDetokenizer::take_segment() {
  std::string result = std::move(segment_);
  segment_.clear();
  return result;
}

}  // namespace mlxlm::text
