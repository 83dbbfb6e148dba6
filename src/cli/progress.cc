#include "cli/progress.h"

#include <algorithm>

#include "base/format.h"
#include "cli/output.h"

namespace mlxlm::cli {
namespace {

constexpr std::chrono::seconds kPatience{1};  // shorter work needs no bar

}  // namespace

std::string progress_line(const std::string& label, int64_t done, int64_t total) {
  constexpr int64_t kWidth = 30;
  total = std::max<int64_t>(total, 1);
  done = std::clamp<int64_t>(done, 0, total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const auto filled = static_cast<size_t>(share * kWidth);
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  return format_text("{} [{}] {:3.0f} %", label, bar, std::min(share * 100, done < total ? 99.0 : 100.0));
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(stderr_is_terminal()), start_(Clock::now()), last_draw_(start_) {}

void ProgressBar::update(int64_t done, int64_t total) { show(progress_line(label_, done, total)); }

void ProgressBar::show(const std::string& line) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || now - start_ < kPatience || now - last_draw_ < kRedraw) return;
  write_err(kEraseLine + line);
  last_draw_ = now;
  drawn_ = true;
}

void ProgressBar::clear() {
  if (drawn_) write_err(kEraseLine);
  drawn_ = false;
}

WaitMessage::WaitMessage(std::string text) {
  if (!stderr_is_terminal()) return;
  thread_ = std::thread([this, text = std::move(text)] {
    std::unique_lock lock(mutex_);
    if (done_changed_.wait_for(lock, kPatience, [this] { return done_; })) return;
    write_err(text + " …");
    done_changed_.wait(lock, [this] { return done_; });
    write_err(kEraseLine);
  });
}

WaitMessage::~WaitMessage() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  done_changed_.notify_one();
  thread_.join();
}

}  // namespace mlxlm::cli
