// What the Python tests of this folder run: snapshot_download by itself.
//   hub_probe REPO [REVISION|-] [WORKERS] [STOP_AT]
// Prints the folder; on standard error a line "STAGE DONE TOTAL RECEIVED FILES_DONE FILES_TOTAL" for each step.
// STOP_AT requests a stop once so many bytes were received. Exit code: 10 + ErrorKind after an Error.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "mlxlm/error.h"
#include "mlxlm/hub.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  mlxlm::HubOptions options;
  std::stop_source stop;
  options.cancel = stop.get_token();
  if (argc > 2 && std::string(argv[2]) != "-") options.revision = argv[2];
  if (argc > 3) options.max_workers = std::atoi(argv[3]);
  const long long stop_at = argc > 4 ? std::atoll(argv[4]) : -1;
  options.progress = [&](const mlxlm::DownloadProgress& p) {
    const bool checking = p.stage == mlxlm::DownloadProgress::Stage::checking;
    std::fprintf(stderr, "%s %lld %lld %lld %d %d\n", checking ? "checking" : "downloading",
                 static_cast<long long>(p.bytes_done), static_cast<long long>(p.bytes_total),
                 static_cast<long long>(p.bytes_received), p.files_done, p.files_total);
    if (stop_at >= 0 && p.bytes_received >= stop_at) stop.request_stop();
  };
  try {
    std::puts(mlxlm::snapshot_download(argv[1], options).c_str());
    return 0;
  } catch (const mlxlm::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 10 + static_cast<int>(error.kind());
  }
}
