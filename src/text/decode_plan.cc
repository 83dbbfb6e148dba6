#include "text/decode_plan.h"

#include <array>
#include <cstdint>

namespace mlxlm::text {
namespace {

using io::Json;

void flatten(const Json& decoder, std::vector<const Json*>& flat) {
  if (decoder.is_object() && decoder.value("type", "") == "Sequence") {
    for (const Json& part : decoder.at("decoders")) flatten(part, flat);
  } else {
    flat.push_back(&decoder);
  }
}

/// Steps that act on each token, before tokens are fused. False when the decoder is not one of them.
bool add_token_step(const Json& decoder, const std::string& type, DecodePlan& plan) {
  using Step = DecodePlan::Step;
  Step step;
  if (type == "Replace") {
    const Json& pattern = decoder.at("pattern");
    if (!pattern.contains("String") || pattern["String"].get<std::string>().empty()) return false;
    step.kind = Step::Kind::replace;
    step.from = pattern["String"].get<std::string>();
    step.to = decoder.at("content").get<std::string>();
  } else if (type == "Strip") {
    step.kind = Step::Kind::strip;
    step.from = decoder.at("content").get<std::string>();
    step.left = decoder.at("start").get<size_t>();
    step.right = decoder.at("stop").get<size_t>();
  } else if (type == "Metaspace") {
    step.kind = Step::Kind::metaspace;
    step.from = decoder.at("replacement").get<std::string>();
    step.drop_in_first = decoder.value("prepend_scheme", "always") != "never";
  } else {
    return false;
  }
  plan.steps.push_back(std::move(step));
  return true;
}

/// Fills the plan; false when some decoder does not fit it.
bool fill_plan(const std::vector<const Json*>& flat, DecodePlan& plan) {
  bool fused = false;
  for (const Json* decoder : flat) {
    const std::string type = decoder->value("type", "");
    if (type == "Fuse") {
      fused = true;
    } else if (fused) {
      // The text is whole here. Only the stripping of its start is known before its end.
      if (type != "Strip" || decoder->at("stop").get<size_t>() != 0 || plan.strip_left != 0) return false;
      plan.strip_left = decoder->at("start").get<size_t>();
      plan.strip_char = decoder->at("content").get<std::string>();
    } else if (type == "ByteFallback") {
      if (plan.byte_fallback) return false;
      plan.byte_fallback = true;
    } else if (plan.byte_fallback || !add_token_step(*decoder, type, plan)) {
      return false;  // also a step after ByteFallback: it would see runs of bytes as one token
    }
  }
  return true;
}

/// GPT-2's map from characters to bytes: printable Latin-1 stands for itself, the rest was moved to 256 and up.
std::array<int16_t, 0x144> byte_level_table() {
  std::array<int16_t, 0x144> table;
  table.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 0x100; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    table[static_cast<size_t>(printable ? byte : next++)] = static_cast<int16_t>(byte);
  }
  return table;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string result;
  size_t last = 0;
  for (; at != std::string::npos; at = text.find(from, last)) {
    result.append(text, last, at - last);
    result += to;
    last = at + from.size();
  }
  result.append(text, last);
  text = std::move(result);
}

void strip_left(std::string& text, std::string_view character, size_t times) {
  for (size_t i = 0; i < times && text.starts_with(character); ++i) text.erase(0, character.size());
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

DecodePlan make_decode_plan(const Json& decoder) {
  DecodePlan plan;
  if (decoder.is_null()) {
    plan.kind = DecodePlan::Kind::pieces;
    plan.separator.assign(1, ' ');
    return plan;
  }
  std::vector<const Json*> flat;
  flatten(decoder, flat);
  if (flat.size() == 1 && flat[0]->value("type", "") == "ByteLevel") {
    plan.kind = DecodePlan::Kind::byte_level;
  } else if (fill_plan(flat, plan)) {
    plan.kind = DecodePlan::Kind::pieces;
  } else {
    plan = DecodePlan{};
  }
  return plan;
}

void apply_steps(const DecodePlan& plan, bool first, std::string& piece) {
  for (const DecodePlan::Step& step : plan.steps) {
    switch (step.kind) {
      case DecodePlan::Step::Kind::replace:
        replace_all(piece, step.from, step.to);
        break;
      case DecodePlan::Step::Kind::strip:
        strip_left(piece, step.from, step.left);
        for (size_t i = 0; i < step.right && piece.ends_with(step.from); ++i) {
          piece.resize(piece.size() - step.from.size());
        }
        break;
      case DecodePlan::Step::Kind::metaspace:
        replace_all(piece, step.from, step.drop_in_first && first ? "" : " ");
        break;
    }
  }
}

std::string token_bytes(const DecodePlan& plan, std::string piece, bool first) {
  std::string bytes;
  if (plan.kind == DecodePlan::Kind::byte_level) {
    append_byte_level(piece, bytes);
    return bytes;
  }
  apply_steps(plan, first, piece);
  if (const int byte = plan.byte_fallback ? fallback_byte(piece) : -1; byte >= 0) {
    bytes.assign(1, static_cast<char>(byte));
  } else {
    if (!first) bytes = plan.separator;
    bytes += piece;
  }
  if (first) strip_left(bytes, plan.strip_char, plan.strip_left);
  return bytes;
}

int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void append_byte_level(std::string_view token, std::string& bytes) {
  static const std::array<int16_t, 0x144> kTable = byte_level_table();
  const size_t start = bytes.size();
  for (size_t i = 0; i < token.size(); ++i) {
    unsigned code = static_cast<unsigned char>(token[i]);
    if (code >= 0xC2 && code <= 0xC5 && i + 1 < token.size()) {  // all characters of the map have at most two bytes
      code = (code & 0x1F) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3F);
    } else if (code >= 0x80) {
      code = kTable.size();
    }
    if (code >= kTable.size() || kTable[code] < 0) {
      bytes.resize(start);
      bytes += token;
      return;
    }
    bytes.push_back(static_cast<char>(kTable[code]));
  }
}

}  // namespace mlxlm::text
