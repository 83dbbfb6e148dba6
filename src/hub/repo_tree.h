// The files of a repository at one commit: as the Hub lists them, and as the cache keeps the list.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "io/json.h"

namespace mlxlm::hub {

/// One file; what the Hub states about it.
struct RepoFile {
  std::string path;  ///< relative to the repository, with '/'
  int64_t size = 0;
  std::string etag;      ///< the blob's name in the cache: SHA-256 of a file in large file storage, else its git SHA-1
  std::string git_oid;   ///< of the file, or of the pointer that git holds in its stead
  std::string xet_hash;  ///< "": none
  bool large = false;    ///< in large file storage
};

using RepoTree = std::map<std::string, RepoFile>;  ///< by path

/// Adds one page of the Hub's answer to /tree. Throws HubError(malformed) for what is not one, unsafe paths included;
/// `where` stands first in the message.
void add_tree_page(const io::Json& page, const std::string& where, RepoTree& tree);

/// The cache's trees/COMMIT.json, as huggingface_hub writes it.
io::Json tree_to_json(const RepoTree& tree);
/// Throws Error where that is not a tree.
RepoTree tree_from_json(const io::Json& json, const std::string& where);

/// Whether a model needs the file. The same ones as mlx-lm takes, so that each finds complete what the other fetched:
/// *.json, *.jsonl, *.txt, *.jinja, *.py, *.tiktoken, tokenizer.model, model*.safetensors. Code is never run here.
bool is_wanted(std::string_view path);

/// The files that an index (the JSON of model.safetensors.index.json) names; empty for one without a weight map.
std::set<std::string> indexed_files(const io::Json& index);

inline constexpr const char* kIndexFile = "model.safetensors.index.json";

}  // namespace mlxlm::hub
