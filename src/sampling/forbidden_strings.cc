#include "sampling/forbidden_strings.h"

#include "base/error.h"
#include "sampling/processors.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace mlxlm {
namespace sampling {
namespace {

unsigned char byte_of(char c) { return static_cast<unsigned char>(c); }

void check_text(const std::string& text) {
  if (text.empty()) throw_invalid("forbid_strings: expected texts of at least one character, got an empty one");
  text::require_utf8(text, "forbid_strings: a text");
  if (text.find("\xEF\xBF\xBD") != std::string::npos) {
    throw_invalid("forbid_strings: U+FFFD cannot be forbidden; it stands for bytes that are not text");
  }
}

}  // namespace

ForbiddenStrings::ForbiddenStrings(const Tokenizer& tokenizer, std::vector<std::string> texts)
    : tokenizer_(tokenizer), texts_(std::move(texts)) {
  for (const std::string& text : texts_) check_text(text);
  if (tokenizer_.impl().decode_plan().kind == text::DecodePlan::Kind::whole) {
    throw_error(ErrorKind::unsupported,
                "forbid_strings: with this tokenizer's decoder a token's text depends on the tokens around it; ban the "
                "ids of whole tokens with ban_token_ids instead");
  }
  link();
  scan_vocabulary();
}

void ForbiddenStrings::link() {
  for (size_t t = 0; t < texts_.size(); ++t) {
    const std::string& text = texts_[t];
    std::vector<size_t> shorter(text.size() + 1, 0);
    for (size_t n = 1, k = 0; n < text.size(); ++n) {
      while (k > 0 && text[n] != text[k]) k = shorter[k];
      if (text[n] == text[k]) ++k;
      shorter[n + 1] = k;
    }
    shorter_.push_back(std::move(shorter));
    completing_.emplace_back(text.size());
    for (size_t n = 0; n < text.size(); ++n) places_[byte_of(text[n])].push_back({t, n});
  }
}

void ForbiddenStrings::scan_vocabulary() {
  const text::TokenizerImpl& impl = tokenizer_.impl();
  std::string piece;
  for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
    if (!impl.hf().id_to_token(id, piece)) continue;
    const std::string bytes = text::token_bytes(impl.decode_plan(), piece, false);
    const bool inside = holds_text(bytes);
    if (inside) inside_.push_back(id);
    const bool byte_level = impl.decode_plan().kind == text::DecodePlan::Kind::byte_level;
    if (byte_level ? inside : holds_text(text::token_bytes(impl.decode_plan(), piece, true))) {
      inside_first_.push_back(id);
    }
    if (inside || bytes.empty()) continue;
    for (const Place& place : places_[byte_of(bytes[0])]) {
      if (place.length == 0) continue;
      const std::string_view rest = std::string_view(texts_[place.text]).substr(place.length);
      if (bytes.starts_with(rest)) completing_[place.text][place.length].push_back(id);
    }
  }
}

bool ForbiddenStrings::holds_text(std::string_view bytes) const {
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const Place& place : places_[byte_of(bytes[i])]) {
      if (place.length == 0 && bytes.substr(i).starts_with(texts_[place.text])) return true;
    }
  }
  return false;
}

bool ForbiddenStrings::advance(Progress& progress, int32_t id, bool first) const {
  std::string piece;
  if (!tokenizer_.impl().hf().id_to_token(id, piece)) return false;
  for (const char c : text::token_bytes(tokenizer_.impl().decode_plan(), std::move(piece), first)) {
    for (size_t t = 0; t < texts_.size(); ++t) {
      const std::string& text = texts_[t];
      size_t n = progress[t];
      while (n > 0 && text[n] != c) n = shorter_[t][n];
      if (text[n] == c) ++n;
      progress[t] = n < text.size() ? n : shorter_[t][n];
    }
  }
  return true;
}

namespace {

class ForbidStrings : public CloneableProcessor<ForbidStrings> {
 public:
  explicit ForbidStrings(std::shared_ptr<const ForbiddenStrings> strings)
      : strings_(std::move(strings)), progress_(strings_->none()) {}

  void start(const Start& start) override {
    generation_.set(start);
    eos_.assign(start.eos_token_ids.begin(), start.eos_token_ids.end());
    restart();
  }

  void process(std::span<const int32_t> tokens, std::span<float> logits) override {
    const auto generated = generation_.generated(tokens);
    if (generated.size() < read_) restart();
    for (; read_ < generated.size(); ++read_) {
      if (strings_->advance(progress_, generated[read_], first_)) first_ = false;
    }
    // An id that ends the text is not part of it.
    eos_logits_.clear();
    for (const int32_t id : eos_) {
      eos_logits_.push_back(static_cast<size_t>(id) < logits.size() ? logits[static_cast<size_t>(id)] : kBanned);
    }
    strings_->each_ban(progress_, first_, [&](std::span<const int32_t> ids) { ban(ids, logits); });
    for (size_t i = 0; i < eos_.size(); ++i) {
      if (static_cast<size_t>(eos_[i]) < logits.size()) logits[static_cast<size_t>(eos_[i])] = eos_logits_[i];
    }
  }

  std::string name() const override { return "forbid_strings"; }

 private:
  void restart() {
    progress_ = strings_->none();
    read_ = 0;
    first_ = true;
  }

  std::shared_ptr<const ForbiddenStrings> strings_;
  ForbiddenStrings::Progress progress_;
  size_t read_ = 0;  // generated tokens in progress_
  bool first_ = true;
  GenerationStart generation_;
  std::vector<int32_t> eos_;
  std::vector<float> eos_logits_;
};

}  // namespace
}  // namespace sampling

std::shared_ptr<LogitsProcessor> forbid_strings(const Tokenizer& tokenizer, std::vector<std::string> texts) {
  return std::make_shared<sampling::ForbidStrings>(
      std::make_shared<const sampling::ForbiddenStrings>(tokenizer, std::move(texts)));
}

}  // namespace mlxlm
