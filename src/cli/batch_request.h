// One line of a batch: what it asks for.
#pragma once

#include <string>
#include <string_view>

#include "cli/settings.h"
#include "io/json.h"
#include "mlxlm/mlxlm.h"

namespace mlxlm::cli {

/// What is wrong with a line of a batch.
struct LineError {
  std::string field;  ///< the JSON key at fault, or "" where it is none or not known
  std::string message;
};

/// The id of a line: a text, a whole number, or null where it has none or is malformed.
io::Json line_id(std::string_view line);

/// A checked request.
struct BatchRequest {
  std::vector<int32_t> prompt_ids;
  GenerationSettings settings;
};

/// Reads a line: a JSON object with an id (optional), one of prompt, messages and prompt_ids, and settings by their
/// JSON names, which replace those of `defaults`. Throws LineError.
BatchRequest read_batch_line(std::string_view line, const GenerationSettings& defaults, const Tokenizer& tokenizer,
                             bool has_draft_model);

/// The error of the library as a line's: its message begins with the setting's name where it is about one.
LineError as_line_error(const Error& error);

}  // namespace mlxlm::cli
