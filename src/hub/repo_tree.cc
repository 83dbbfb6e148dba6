#include "hub/repo_tree.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "hub/hub_error.h"
#include "hub/names.h"

namespace mlxlm::hub {
namespace {

constexpr int kTreeFormat = 1;  // huggingface_hub's trees/*.json

[[noreturn]] void malformed(const std::string& where, const std::string& message) {
  throw HubError(Trouble::malformed, ErrorKind::io, format_text("{}: {}", where, message));
}

std::string text_of(const io::Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t size_of(const io::Json& object, const char* key, const std::string& where, const std::string& path) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer() || *it < 0) {
    malformed(where, format_text("'{}': expected \"{}\" to be a number of bytes", path, key));
  }
  return it->get<int64_t>();
}

/// Checks what will become a path or decide whether a file is intact.
void add_file(RepoFile file, const std::string& where, RepoTree& tree) {
  if (!is_safe_file_name(file.path)) {
    malformed(where, format_text("refused the file name '{}': it would leave the repository's folder", file.path));
  }
  if (!is_safe_etag(file.etag) || (file.large && !is_hex_digits(file.etag, 64))) {
    malformed(where, format_text("'{}': expected a checksum, got '{}'", file.path, file.etag));
  }
  std::string path = file.path;
  tree.insert_or_assign(std::move(path), std::move(file));
}

}  // namespace

void add_tree_page(const io::Json& page, const std::string& where, RepoTree& tree) {
  if (!page.is_array()) malformed(where, "expected a list of files");
  for (const io::Json& entry : page) {
    if (!entry.is_object()) malformed(where, "expected a list of files");
    if (text_of(entry, "type") != "file") continue;  // folders
    RepoFile file;
    file.path = text_of(entry, "path");
    file.git_oid = text_of(entry, "oid");
    file.xet_hash = text_of(entry, "xetHash");
    const auto lfs = entry.find("lfs");
    file.large = lfs != entry.end() && lfs->is_object();
    file.size = size_of(file.large ? *lfs : entry, "size", where, file.path);
    file.etag = file.large ? text_of(*lfs, "oid") : file.git_oid;
    add_file(std::move(file), where, tree);
  }
}

io::Json tree_to_json(const RepoTree& tree) {
  std::vector<std::pair<std::string, io::Json>> files;
  for (const auto& [path, file] : tree) {
    io::Json entry = {{"size", file.size}, {"blob_id", file.git_oid}};
    if (file.large) {
      entry["lfs_sha256"] = file.etag;
      entry["lfs_size"] = file.size;
    }
    if (!file.xet_hash.empty()) entry["xet_hash"] = file.xet_hash;
    files.emplace_back(path, std::move(entry));
  }
  return {{"format_version", kTreeFormat}, {"files", io::make_object(std::move(files))}};
}

RepoTree tree_from_json(const io::Json& json, const std::string& where) {
  if (!json.is_object() || json.value("format_version", io::Json()) != kTreeFormat || !json.contains("files") ||
      !json["files"].is_object()) {
    malformed(where, "expected a list of files in a known format");
  }
  RepoTree tree;
  for (const auto& [path, entry] : json["files"].items()) {
    if (!entry.is_object()) malformed(where, format_text("'{}': expected an object", path));
    RepoFile file;
    file.path = path;
    file.git_oid = text_of(entry, "blob_id");
    file.xet_hash = text_of(entry, "xet_hash");
    const std::string sha256 = text_of(entry, "lfs_sha256");
    file.large = !sha256.empty();
    file.size = size_of(entry, file.large ? "lfs_size" : "size", where, path);
    file.etag = file.large ? sha256 : file.git_oid;
    add_file(std::move(file), where, tree);
  }
  return tree;
}

bool is_wanted(std::string_view path) {
  static constexpr std::array kEndings = {".json", ".jsonl", ".txt", ".jinja", ".py", ".tiktoken"};
  return std::any_of(kEndings.begin(), kEndings.end(), [path](const char* ending) { return path.ends_with(ending); }) ||
         path == "tokenizer.model" || (path.starts_with("model") && path.ends_with(".safetensors"));
}

std::set<std::string> indexed_files(const io::Json& index) {
  std::set<std::string> files;
  if (!index.is_object()) return files;
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) return files;
  for (const auto& [tensor, file] : map->items()) {
    if (file.is_string()) files.insert(file.get<std::string>());
  }
  return files;
}

}  // namespace mlxlm::hub
