// What the Hub is asked: which commit a revision is, which files it has, and their bytes.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "hub/net.h"
#include "hub/repo_tree.h"
#include "hub/settings.h"

namespace mlxlm::hub {

/// Requests about one repository; safe to use from many threads. Throws HubError with advice for the user, Transient
/// where the caller should try again.
class HubClient {
 public:
  HubClient(const Settings& settings, std::string repo, std::stop_token cancel);

  /// The commit a branch, tag or commit stands for. `attempts`: how often to try.
  std::string commit_of(const std::string& revision, int attempts) const;
  RepoTree tree(const std::string& commit, int attempts) const;
  /// One attempt at the file from byte `start` on; the status is 200, 206 or 416.
  HttpResponse open(const std::string& commit, const RepoFile& file, int64_t start) const;

  const std::stop_token& cancel() const { return cancel_; }

 private:
  HttpResponse request(const std::string& url, const std::string& revision, int64_t start) const;
  io::Json get_json(const std::string& url, const std::string& revision, int attempts, std::string* next) const;
  [[noreturn]] void fail(const HttpResponse& response, const std::string& revision) const;
  std::string no_access(int status, const std::string& detail) const;
  std::string api(const std::string& rest) const;

  Settings settings_;
  std::string repo_;
  std::stop_token cancel_;
  HttpClient http_;
};

}  // namespace mlxlm::hub
