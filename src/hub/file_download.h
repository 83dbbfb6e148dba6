// One file of a repository: fetched, checked, put into its place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hub/cache.h"
#include "hub/hub_client.h"
#include "hub/net.h"
#include "hub/progress.h"

namespace mlxlm::hub {

/// Makes blobs/ETAG hold the file. What arrives goes to blobs/ETAG.incomplete, which stays there when the download is
/// stopped or fails and is gone on with the next time. It is trusted only as far as the checksum of the whole agrees in
/// the end: otherwise the file starts again.
class FileDownload {
 public:
  FileDownload(const RepoCache& cache, const HubClient& client, std::string commit, const RepoFile& file,
               ProgressMeter& progress)
      : cache_(cache), client_(client), commit_(std::move(commit)), file_(file), progress_(progress) {}

  /// Throws HubError or Error(io, cancelled).
  void run();

 private:
  class Output;

  void fetch(Output& output);
  void receive(Output& output);
  void start_over(Output& output);
  void require_place(const HttpResponse& response, Output& output);
  void check_length(const HttpResponse& response, int64_t start) const;
  [[noreturn]] void wrong_content(Output& output, const std::string& what);
  void report(int64_t position, int64_t received);
  std::string where() const { return commit_.substr(0, 8) + "/" + file_.path; }

  const RepoCache& cache_;
  const HubClient& client_;
  std::string commit_;
  const RepoFile& file_;
  ProgressMeter& progress_;
  int64_t reported_ = 0;    ///< bytes of this file that the meter counts
  int wrong_contents_ = 0;  ///< how often the bytes were not those announced
  bool resumed_ = false;    ///< some of them were there before this call
};

}  // namespace mlxlm::hub
