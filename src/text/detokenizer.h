// Token ids to text, one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mlxlm/tokenizer.h"
#include "text/decode_plan.h"
#include "text/rust_bridge.h"
#include "text/utf8.h"

namespace mlxlm::text {

/// Streams the text of a growing list of tokens. Guarantees: the segments joined are what Tokenizer::decode gives for
/// all ids at once; a segment is whole characters of UTF-8; special tokens are rendered; unknown ids (padding rows of
/// the vocabulary) give nothing. Cost: O(1) amortised per token for byte-level and SentencePiece-like decoders; other
/// decoders (WordPiece, CTC, regular expressions) decode all ids again for each token.
///
/// Ill-formed bytes become U+FFFD: by maximal parts for byte-level tokenizers, one for each byte where tokens are
/// single bytes. The tokenizers crate differs in one case: it gives up a whole run of "<0xNN>" tokens, valid characters
/// included, when any byte in it is ill-formed; a stream cannot, and need not, take back what it has shown.
///
/// Belongs to one request.
class StreamingDetokenizer {
 public:
  /// Keeps a handle of the tokenizer.
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = false);
  /// Both must outlive the object.
  StreamingDetokenizer(const HfTokenizer& tokenizer, const DecodePlan& plan, bool skip_special_tokens = false);

  void add_token(int32_t id);
  /// No more tokens: an unfinished character becomes U+FFFD.
  void finalize();
  /// The text that became known since the last call.
  std::string take_segment();
  /// Starts again with an empty list.
  void reset();

 private:
  void add_piece();
  void emit_from(size_t start);
  void decode_whole(bool final);

  std::optional<Tokenizer> kept_;
  const HfTokenizer* tokenizer_;
  const DecodePlan* plan_;
  bool skip_special_;
  bool first_ = true;      // no token so far
  size_t strip_left_ = 0;  // characters that may still be dropped at the start
  Utf8Stream utf8_;
  std::string piece_;         // the token at hand
  std::string bytes_;         // its bytes, for byte-level tokenizers
  std::string segment_;       // text not taken yet
  std::vector<int32_t> ids_;  // all tokens; DecodePlan::Kind::whole only
  size_t given_ = 0;          // bytes of their text in segments so far
};

}  // namespace mlxlm::text
