// Models from the Hugging Face Hub, kept in the cache that Python's huggingface_hub uses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

namespace mlxlm {

/// How far a snapshot is.
struct DownloadProgress {
  enum class Stage {
    checking,     ///< the checksums of files that are in the cache but were not checked before
    downloading,  ///< what is missing or damaged
  };
  Stage stage = Stage::downloading;
  int64_t bytes_done = 0;  ///< of this stage; falls when a server makes a file start again
  int64_t bytes_total = 0;
  int64_t bytes_received = 0;  ///< over the network in this call
  int files_done = 0;          ///< of this stage
  int files_total = 0;
};

struct HubOptions {
  std::string revision{};         ///< branch, tag or commit; empty: main
  std::string cache_dir{};        ///< empty: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub
  std::string token{};            ///< empty: HF_TOKEN, else what `hf auth login` left in HF_HOME/token
  std::string endpoint{};         ///< empty: HF_ENDPOINT, else https://huggingface.co
  std::optional<bool> offline{};  ///< use the cache alone; none: HF_HUB_OFFLINE
  int max_workers = 8;            ///< files downloaded at the same time
  std::function<void(const DownloadProgress&)> progress{};  ///< called from any thread, one call at a time
  std::stop_token cancel{};  ///< request_stop() ends it with Error(cancelled); what was received is kept for next time
};

/// The folder of a repository's snapshot, with the files a model needs: configs, tokenizer, chat templates, weights.
/// What is missing is downloaded, going on where an earlier call was cut; every file's size and checksum are those the
/// Hub states, and one that is damaged is fetched again. When the Hub cannot be reached, a complete snapshot of the
/// cache does. Safe to call from many threads and processes at once.
/// Throws Error naming the repository, file or address: not_found (no such repository or revision, or not in the cache
/// while offline), io (network, disk, no access), invalid_value (a malformed name), cancelled.
std::string snapshot_download(const std::string& repo, const HubOptions& options = {});

}  // namespace mlxlm
