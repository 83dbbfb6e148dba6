#include "hub/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "hub/backoff.h"
#include "hub/names.h"
#include "hub/net.h"
#include "io/files.h"

namespace mlxlm::hub {
namespace {

namespace fs = std::filesystem;

// Read at every call: a millisecond each. Larger ones only when they changed.
constexpr int64_t kSmall = 1 << 20;
constexpr size_t kBuffer = 1 << 20;

void make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw_error(ErrorKind::io, "{}: cannot create the folder: {}; HF_HOME or HF_HUB_CACHE moves the cache elsewhere",
                path, error.message());
  }
}

/// Does what may fail where a cache is mounted read-only.
template <typename Action>
void where_writable(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io && error.kind() != ErrorKind::not_found) throw;
  }
}

/// What changes whenever a file does.
std::optional<std::string> state_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return format_text("{} {} {}.{} {}.{}\n", info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                     info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

bool is_file_of_size(const std::string& path, int64_t size) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == size;
}

/// The last part of a link's target; "" where there is no link.
std::string link_target_name(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return error ? "" : target.filename().string();
}

bool has_checksum(const std::string& path, const RepoFile& file, const std::stop_token& cancel,
                  const std::function<void(int64_t)>& on_read) {
  io::InputFile input(path);
  BlobDigest digest(file.etag, static_cast<uint64_t>(file.size));
  std::vector<char> buffer(kBuffer);
  for (auto left = static_cast<size_t>(file.size); left > 0;) {
    throw_if_cancelled(cancel);
    const size_t n = std::min(left, buffer.size());
    input.read(buffer.data(), n);
    digest.update({buffer.data(), n});
    left -= n;
    if (on_read) on_read(static_cast<int64_t>(n));
  }
  return digest.matches();
}

}  // namespace

RepoCache::RepoCache(std::string cache_dir, const std::string& repo)
    : cache_dir_(std::move(cache_dir)),
      folder_(cache_dir_ + "/" + cache_folder_name(repo)),
      locks_(cache_dir_ + "/.locks/" + cache_folder_name(repo)) {}

void RepoCache::prepare() const {
  for (const std::string& path : {locks_, folder_ + "/blobs", folder_ + "/snapshots", folder_ + "/refs"}) {
    make_folders(path);
  }
  // The mark by which backup programs know a folder that can be made again.
  const std::string tag = cache_dir_ + "/CACHEDIR.TAG";
  if (!io::file_exists(tag)) {
    where_writable([&tag] { io::write_text_file(tag, "Signature: 8a477f597d28d172789f06886806bc55\n"); });
  }
}

std::optional<std::string> RepoCache::commit_of(const std::string& revision) const {
  if (is_commit_hash(revision)) return revision;
  const std::string path = folder_ + "/refs/" + revision;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::string commit = io::read_text_file(path);
  while (commit.ends_with('\n')) commit.pop_back();
  return is_commit_hash(commit) ? std::optional(commit) : std::nullopt;
}

void RepoCache::keep_commit(const std::string& revision, const std::string& commit) const {
  if (revision == commit || commit_of(revision) == commit) return;
  const std::string path = folder_ + "/refs/" + revision;
  where_writable([&] {
    make_folders(fs::path(path).parent_path().string());
    io::write_text_file(path, commit);
  });
}

std::optional<RepoTree> RepoCache::tree(const std::string& commit) const {
  const std::string path = folder_ + "/trees/" + commit + ".json";
  if (!io::file_exists(path)) return std::nullopt;
  try {
    return tree_from_json(io::read_json_file(path), path);
  } catch (const Error&) {
    return std::nullopt;  // it will be asked for again
  }
}

void RepoCache::keep_tree(const std::string& commit, const RepoTree& tree) const {
  where_writable([&] {
    make_folders(folder_ + "/trees");
    io::write_text_file(folder_ + "/trees/" + commit + ".json", tree_to_json(tree).dump(1));
  });
}

RepoTree RepoCache::files_of_snapshot(const std::string& commit) const {
  RepoTree tree;
  std::error_code error;
  const fs::path root = snapshot(commit);
  for (auto it = fs::recursive_directory_iterator(root, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    RepoFile file;
    file.path = it->path().lexically_relative(root).generic_string();
    file.size = static_cast<int64_t>(it->file_size(error));
    const std::string name = link_target_name(it->path());
    if (is_safe_etag(name)) file.etag = name;
    std::string path = file.path;
    tree.emplace(std::move(path), std::move(file));
  }
  return tree;
}

bool RepoCache::needs_reading(const std::string& path, const RepoFile& file) const {
  if (!is_file_of_size(path, file.size) || file.size <= kSmall || !BlobDigest::is_known(file.etag)) return false;
  const std::string note = verified(file.etag);
  try {
    return !io::file_exists(note) || io::read_text_file(note) != state_of(path);
  } catch (const Error&) {
    return true;
  }
}

bool RepoCache::is_intact(const std::string& path, const RepoFile& file, const std::stop_token& cancel,
                          const std::function<void(int64_t)>& on_read) const {
  if (!is_file_of_size(path, file.size)) return false;
  if (!BlobDigest::is_known(file.etag)) return true;
  const bool large = file.size > kSmall;
  if (large && !needs_reading(path, file)) return true;
  if (!has_checksum(path, file, cancel, on_read)) return false;
  if (large) keep_verified(path, file.etag);
  return true;
}

void RepoCache::keep_verified(const std::string& path, const std::string& etag) const {
  const auto state = state_of(path);
  if (!state || etag.empty()) return;
  where_writable([&] {
    make_folders(folder_ + "/.verified");
    io::write_text_file(verified(etag), *state);
  });
}

bool RepoCache::has_pointer(const std::string& commit, const RepoFile& file) const {
  const std::string path = pointer(commit, file.path);
  const std::string target = link_target_name(path);
  return io::file_exists(path) && (target.empty() || target == file.etag);
}

void RepoCache::make_pointer(const std::string& commit, const RepoFile& file) const {
  const fs::path path = pointer(commit, file.path);
  make_folders(path.parent_path().string());
  // Relative, so that the cache can be moved.
  const fs::path target = fs::path(blob(file.etag)).lexically_relative(path.parent_path());
  const std::string temporary = io::temporary_name(path.string());
  std::error_code error;
  fs::create_symlink(target, temporary, error);
  // Not every file system has links.
  if (error) fs::create_hard_link(blob(file.etag), temporary, error);
  if (error) fs::copy_file(blob(file.etag), temporary, error);
  if (!error) fs::rename(temporary, path, error);
  if (error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw_error(ErrorKind::io, "{}: cannot link to {}: {}", path.string(), target.string(), error.message());
  }
}

}  // namespace mlxlm::hub
