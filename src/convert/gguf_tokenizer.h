// A GGUF file's tokenizer as the files of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/gguf.h"
#include "io/json.h"

namespace mlxlm::conversion {

struct TokenizerPlan {
  io::Json tokenizer;  ///< tokenizer.json
  io::Json config;     ///< tokenizer_config.json
  std::optional<int64_t> bos;
  std::optional<int64_t> pad;
  std::vector<int64_t> eos;  ///< the end of text and the ends of turns, in this order
};

/// Knows byte-level BPE ("gpt2" with the pre-tokenisers gpt-2, smollm, llama-bpe and qwen2) and SentencePiece's BPE
/// ("llama"). Throws Error naming the key, and Error(unsupported) for other kinds.
TokenizerPlan plan_tokenizer(const io::GgufFile& gguf, int64_t context_length);

}  // namespace mlxlm::conversion
