// One repository in the cache, in the layout of Python's huggingface_hub:
//   models--ORG--NAME/refs/REVISION           the commit that a branch or tag was last seen at
//                     trees/COMMIT.json       the Hub's list of the commit's files
//                     blobs/ETAG              contents, named by their checksum; ETAG.incomplete while they arrive
//                     snapshots/COMMIT/PATH   links to blobs
//                     .verified/ETAG          ours: which state of the blob was found intact, so that it is read once
//   .locks/models--ORG--NAME/ETAG.lock        held by whoever fetches the blob
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "hub/repo_tree.h"

namespace mlxlm::hub {

/// Safe to use from many threads; every change is a rename, so others see the old state or the new one.
class RepoCache {
 public:
  RepoCache(std::string cache_dir, const std::string& repo);

  const std::string& folder() const { return folder_; }
  std::string snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }
  std::string pointer(const std::string& commit, const std::string& path) const {
    return snapshot(commit) + "/" + path;
  }
  std::string blob(const std::string& etag) const { return folder_ + "/blobs/" + etag; }
  std::string incomplete(const std::string& etag) const { return blob(etag) + ".incomplete"; }
  std::string lock(const std::string& etag) const { return locks_ + "/" + etag + ".lock"; }

  /// Creates the folders that downloads write to.
  void prepare() const;

  /// The commit of a revision: itself, or what refs/ says; none where that is missing or damaged.
  std::optional<std::string> commit_of(const std::string& revision) const;
  /// Keeps the commit of a branch or tag. A cache that cannot be written stays as it is.
  void keep_commit(const std::string& revision, const std::string& commit) const;

  /// None where it is missing or damaged.
  std::optional<RepoTree> tree(const std::string& commit) const;
  /// A cache that cannot be written stays as it is.
  void keep_tree(const std::string& commit, const RepoTree& tree) const;
  /// The files that a snapshot folder holds, for caches without a tree; etags come from the blobs' names and are empty
  /// where a file is no link.
  RepoTree files_of_snapshot(const std::string& commit) const;

  /// Whether a blob has the size and the checksum it should. Large ones are read when they changed since they were
  /// last found intact; `on_read` hears how many bytes of that are done.
  bool is_intact(const std::string& path, const RepoFile& file, const std::stop_token& cancel,
                 const std::function<void(int64_t)>& on_read = {}) const;
  /// Whether is_intact would have to read a large file.
  bool needs_reading(const std::string& path, const RepoFile& file) const;
  /// Notes that the blob in its place is intact.
  void keep_verified(const std::string& path, const std::string& etag) const;

  /// Whether the snapshot's entry leads to the blob of this name, or is a file of its own.
  bool has_pointer(const std::string& commit, const RepoFile& file) const;
  /// Makes the snapshot's entry lead to the blob, whatever was there.
  void make_pointer(const std::string& commit, const RepoFile& file) const;

 private:
  std::string verified(const std::string& etag) const { return folder_ + "/.verified/" + etag; }

  std::string cache_dir_;
  std::string folder_;
  std::string locks_;
};

}  // namespace mlxlm::hub
