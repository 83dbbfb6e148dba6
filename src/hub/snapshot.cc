// snapshot_download(): which commit, which files, what is missing; then the files side by side.
#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "hub/backoff.h"
#include "hub/cache.h"
#include "hub/file_download.h"
#include "hub/names.h"
#include "hub/settings.h"
#include "io/files.h"

namespace mlxlm {
namespace hub {
namespace {

constexpr int kPatient = 4;  // attempts at a request that nothing can be done without: pauses of 3.5 s in all

/// Runs every action in one of `n_workers` threads. The first failure stops the others and is thrown here.
class Workers {
 public:
  Workers(int n_workers, std::stop_token cancel)
      : n_workers_(n_workers), forward_(std::move(cancel), [this] { stop_.request_stop(); }) {}

  std::stop_token token() const { return stop_.get_token(); }

  template <typename Action>
  void for_each(size_t n, const Action& action) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < n && !stop_.stop_requested(); i = next++) {
        try {
          action(i);
        } catch (...) {
          keep(std::current_exception());
        }
      }
    };
    {
      std::vector<std::jthread> threads;
      for (size_t i = 1; i < std::min(n, static_cast<size_t>(n_workers_)); ++i) threads.emplace_back(work);
      work();
    }
    if (failure_) std::rethrow_exception(failure_);
    throw_if_cancelled(token());
  }

 private:
  void keep(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    stop_.request_stop();
  }

  int n_workers_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::stop_callback<std::function<void()>> forward_;
};

/// One call of snapshot_download.
class Snapshot {
 public:
  Snapshot(const std::string& repo, const HubOptions& options)
      : repo_(repo),
        settings_(resolve_settings(options)),
        cache_(settings_.cache_dir, repo),
        workers_(options.max_workers, options.cancel),
        progress_(options.progress) {}

  std::string get() {
    const std::string& revision = settings_.revision;
    const std::optional<std::string> cached = cache_.commit_of(revision);
    const bool present = cached && is_folder(cache_.snapshot(*cached));
    const std::string missing = present ? missing_in_cache(*cached) : "";
    const bool complete = present && missing.empty();
    if (settings_.offline) {
      if (!complete) refuse_offline(present, missing);
      return cache_.snapshot(*cached);
    }
    const bool listed = complete && cache_.tree(*cached);
    // A commit never changes: a complete one needs no network.
    if (listed && is_commit_hash(revision)) return cache_.snapshot(revision);
    const HubClient client(settings_, repo_, workers_.token());
    try {
      // With something to fall back on, one attempt is enough.
      look_up(client, complete ? 1 : kPatient);
    } catch (const HubError& error) {
      if (error.trouble() == Trouble::no_revision) throw;
      if (complete) return cache_.snapshot(*cached);
      if (error.trouble() != Trouble::unreachable) throw;
      throw HubError(
          error.trouble(), error.kind(),
          format_text("{}: no folder of that name here, and the Hub cannot be reached: {}. Give a local folder, "
                      "or set what leads to the Hub or a mirror (HTTPS_PROXY, HF_ENDPOINT)",
                      repo_, error.what()));
    }
    if (!listed || commit_ != *cached) {
      download(client, select(*tree_));
      download(client, select_indexed());
    }
    cache_.keep_commit(revision, commit_);
    return cache_.snapshot(commit_);
  }

 private:
  static bool is_folder(const std::string& path) {
    std::error_code error;
    return std::filesystem::is_directory(path, error);
  }

  /// Asks the Hub what the revision is.
  void look_up(const HubClient& client, int attempts) {
    const std::string& revision = settings_.revision;
    commit_ = is_commit_hash(revision) ? revision : client.commit_of(revision, attempts);
    tree_ = cache_.tree(commit_);
    if (tree_) return;
    tree_ = client.tree(commit_, attempts);
    cache_.keep_tree(commit_, *tree_);
  }

  [[noreturn]] void refuse_offline(bool present, const std::string& missing) const {
    const std::string what =
        present ? format_text("'{}' of revision '{}' is missing or damaged in", missing, settings_.revision)
                : format_text("no folder of that name, and revision '{}' is not in", settings_.revision);
    throw_error(ErrorKind::not_found,
                "{}: {} the cache {}; offline (HF_HUB_OFFLINE): fetch it once with the network, or give a local folder",
                repo_, what, settings_.cache_dir);
  }

  /// The first file that a complete snapshot in the cache would hold and this one does not; "" for a complete one.
  std::string missing_in_cache(const std::string& commit) {
    const auto tree = cache_.tree(commit);
    commit_ = commit;
    tree_ = tree ? *tree : cache_.files_of_snapshot(commit);
    const auto damaged = find_missing(select(*tree_));
    if (!damaged.empty()) return damaged.front()->path;
    const auto damaged_weights = find_missing(select_indexed());
    if (!damaged_weights.empty()) return damaged_weights.front()->path;
    return tree ? "" : missing_by_name();
  }

  /// Without the Hub's list: what every model has, and what the index names.
  std::string missing_by_name() const {
    if (!tree_->contains("config.json")) return "config.json";
    for (const std::string& name : index()) {
      if (!tree_->contains(name)) return name;
    }
    const bool weights = std::any_of(tree_->begin(), tree_->end(),
                                     [](const auto& entry) { return entry.first.ends_with(".safetensors"); });
    return weights ? "" : "model.safetensors";
  }

  static std::vector<const RepoFile*> select(const RepoTree& tree) {
    std::vector<const RepoFile*> files;
    for (const auto& [path, file] : tree) {
      if (is_wanted(path)) files.push_back(&file);
    }
    return files;
  }

  std::set<std::string> index() const {
    const std::string path = cache_.pointer(commit_, kIndexFile);
    return tree_->contains(kIndexFile) ? indexed_files(io::read_json_file(path)) : std::set<std::string>();
  }

  /// Weights under other names than usual.
  std::vector<const RepoFile*> select_indexed() const {
    std::vector<const RepoFile*> files;
    for (const std::string& name : index()) {
      const auto it = tree_->find(name);
      if (it != tree_->end() && !is_wanted(name)) files.push_back(&it->second);
    }
    return files;
  }

  /// Those that are not in the cache as they should be. Intact blobs that lack only their link get it.
  std::vector<const RepoFile*> find_missing(const std::vector<const RepoFile*>& files) {
    std::vector<const RepoFile*> to_read;
    int64_t bytes = 0;
    for (const RepoFile* file : files) {
      if (!cache_.needs_reading(place(*file), *file)) continue;
      to_read.push_back(file);
      bytes += file->size;
    }
    if (!to_read.empty()) {
      progress_.start(DownloadProgress::Stage::checking, static_cast<int>(to_read.size()), bytes);
    }
    std::vector<char> missing(files.size());
    workers_.for_each(files.size(), [&](size_t i) {
      const bool reads = std::find(to_read.begin(), to_read.end(), files[i]) != to_read.end();
      missing[i] = !cache_.is_intact(place(*files[i]), *files[i], workers_.token(), [&](int64_t n) {
        if (reads) progress_.add(n, 0);
      });
      if (reads) progress_.file_done();
    });
    std::vector<const RepoFile*> out;
    for (size_t i = 0; i < files.size(); ++i) {
      if (missing[i]) {
        out.push_back(files[i]);
      } else if (!cache_.has_pointer(commit_, *files[i])) {
        cache_.make_pointer(commit_, *files[i]);
      }
    }
    return out;
  }

  /// Where the file's bytes are: the snapshot's entry, or the blob that another snapshot brought.
  std::string place(const RepoFile& file) const {
    return cache_.has_pointer(commit_, file) ? cache_.pointer(commit_, file.path) : cache_.blob(file.etag);
  }

  void download(const HubClient& client, const std::vector<const RepoFile*>& files) {
    std::vector<const RepoFile*> missing = find_missing(files);
    if (missing.empty()) return;
    cache_.prepare();
    require_space(missing);
    int64_t bytes = 0;
    for (const RepoFile* file : missing) bytes += file->size;
    progress_.start(DownloadProgress::Stage::downloading, static_cast<int>(missing.size()), bytes);
    // The largest first: at the end no worker waits for one that has just begun.
    std::stable_sort(missing.begin(), missing.end(), [](const auto* a, const auto* b) { return a->size > b->size; });
    workers_.for_each(missing.size(),
                      [&](size_t i) { FileDownload(cache_, client, commit_, *missing[i], progress_).run(); });
  }

  void require_space(const std::vector<const RepoFile*>& files) const {
    int64_t needed = 0;
    for (const RepoFile* file : files) {
      std::error_code error;
      const auto there = std::filesystem::file_size(cache_.incomplete(file->etag), error);
      needed += file->size - (error ? 0 : std::min(file->size, static_cast<int64_t>(there)));
    }
    std::error_code error;
    const auto space = std::filesystem::space(cache_.folder(), error);
    if (error || static_cast<int64_t>(space.available) >= needed) return;
    throw_error(ErrorKind::io,
                "{}: {:.1f} GB are to be downloaded, and {} has {:.1f} GB left; HF_HUB_CACHE moves the cache elsewhere",
                repo_, static_cast<double>(needed) / 1e9, settings_.cache_dir,
                static_cast<double>(space.available) / 1e9);
  }

  std::string repo_;
  Settings settings_;
  RepoCache cache_;
  Workers workers_;
  ProgressMeter progress_;
  std::string commit_;
  std::optional<RepoTree> tree_;
};

}  // namespace
}  // namespace hub

std::string snapshot_download(const std::string& repo, const HubOptions& options) {
  hub::require_repo_id(repo);
  return hub::Snapshot(repo, options).get();
}

}  // namespace mlxlm
