#include "cli/download_bar.h"

#include "base/format.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/report.h"

namespace mlxlm::cli {

std::string download_line(const DownloadProgress& progress, double rate) {
  const bool checking = progress.stage == DownloadProgress::Stage::checking;
  std::string line = progress_line(checking ? "Checking" : "Downloading", progress.bytes_done, progress.bytes_total);
  line += format_text("  {} of {}", bytes_text(static_cast<double>(progress.bytes_done)),
                      bytes_text(static_cast<double>(progress.bytes_total)));
  if (checking || rate < 1) return line;
  line += format_text(", {}/s", bytes_text(rate));
  const auto left = static_cast<int64_t>(static_cast<double>(progress.bytes_total - progress.bytes_done) / rate);
  if (left >= 3600) return line + format_text(", {} h {:02} min left", left / 3600, left % 3600 / 60);
  if (left >= 60) return line + format_text(", {} min {:02} s left", left / 60, left % 60);
  return line + format_text(", {} s left", left);
}

DownloadBar::DownloadBar() : terminal_(stderr_is_terminal()) {}

double DownloadBar::rate(const DownloadProgress& progress, Clock::time_point now) {
  constexpr std::chrono::seconds kWindow{1};
  constexpr double kNewest = 0.3;  // of the last second against all before: steady, and right after a few seconds
  if (measured_ == Clock::time_point()) {
    measured_ = now;
    received_ = progress.bytes_received;
  } else if (now - measured_ >= kWindow) {
    const double seconds = std::chrono::duration<double>(now - measured_).count();
    const double latest = static_cast<double>(progress.bytes_received - received_) / seconds;
    rate_ = rate_ == 0 ? latest : kNewest * latest + (1 - kNewest) * rate_;
    measured_ = now;
    received_ = progress.bytes_received;
  }
  return rate_;
}

void DownloadBar::update(const DownloadProgress& progress) {
  if (!terminal_) return;
  const Clock::time_point now = Clock::now();
  const double bytes_per_second = rate(progress, now);
  const bool last = progress.bytes_done == progress.bytes_total;
  if (now - last_draw_ < kRedraw && !last) return;
  write_err(kEraseLine + download_line(progress, bytes_per_second));
  last_draw_ = now;
  drawn_ = true;
}

void DownloadBar::clear() {
  if (drawn_) write_err(kEraseLine);
  drawn_ = false;
}

}  // namespace mlxlm::cli
