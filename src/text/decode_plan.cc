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
