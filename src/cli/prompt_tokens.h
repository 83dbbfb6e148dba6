// Prompts as token ids: through the chat template, as plain text, or as what follows a cached beginning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "io/json.h"

namespace mlxlm::cli {

/// One user's message through the chat template, or, without a template, the text as it is with the tokenizer's special
/// tokens. Throws Error for settings that need a template where there is none, and for an empty prompt.
std::vector<int32_t> prompt_token_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                      const std::string& text);

/// What follows a cached beginning: the rendered conversation from where the user's message begins, or the text alone.
std::vector<int32_t> continuation_token_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                            const std::string& text);

/// A conversation of messages, a JSON array of objects. The settings' system prompt stands first unless the messages
/// bring their own.
std::vector<int32_t> messages_token_ids(const Tokenizer& tokenizer, const GenerationSettings& settings,
                                        const io::Json& messages);

}  // namespace mlxlm::cli
