#include "hub/backoff.h"

#include <gtest/gtest.h>

#include <thread>

#include "io/test_files.h"

namespace mlxlm::hub {
namespace {

using io::thrown_by;
using std::chrono::milliseconds;

Transient at_once() { return Transient(Trouble::busy, "busy", milliseconds(0)); }

TEST(Backoff, GivesUpAfterSoManyFailuresInARow) {
  Backoff backoff(3, {});
  backoff.after(at_once());
  backoff.after(at_once());
  backoff.reset();
  backoff.after(at_once());
  backoff.after(at_once());
  EXPECT_EQ(thrown_by([&] { backoff.after(at_once()); }).message, "busy (tried 3 times)");
  Backoff single(1, {});
  EXPECT_EQ(thrown_by([&] { single.after(at_once()); }).message, "busy");
}

TEST(Backoff, PausesLongerEachTime) {
  using Clock = std::chrono::steady_clock;
  Backoff backoff(5, {});
  const auto start = Clock::now();
  backoff.after(Transient(Trouble::busy, "busy"));
  const auto first = Clock::now();
  backoff.after(Transient(Trouble::busy, "busy"));
  EXPECT_GE(first - start, milliseconds(500));
  EXPECT_GE(Clock::now() - first, milliseconds(1000));
}

TEST(Backoff, DoesNotWaitForHours) {
  Backoff backoff(5, {});
  const auto thrown = thrown_by([&] { backoff.after(Transient(Trouble::busy, "busy", std::chrono::seconds(3600))); });
  EXPECT_EQ(thrown.message, "busy; it asks to wait 3600 s: try again then");
}

TEST(Backoff, AStopEndsThePause) {
  std::stop_source stop;
  std::jthread stopper([&stop] {
    std::this_thread::sleep_for(milliseconds(50));
    stop.request_stop();
  });
  Backoff backoff(5, stop.get_token());
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = thrown_by([&] { backoff.after(Transient(Trouble::busy, "busy", std::chrono::seconds(60))); });
  EXPECT_EQ(thrown.kind, ErrorKind::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Backoff, ReadsWhatTheServerAsksFor) {
  EXPECT_EQ(requested_pause("7", ""), std::chrono::seconds(7));
  EXPECT_EQ(requested_pause("", "\"api\";r=0;t=55"), std::chrono::seconds(55));
  EXPECT_EQ(requested_pause("7", "\"api\";r=0;t=55"), std::chrono::seconds(7));
  EXPECT_EQ(requested_pause("Wed, 21 Oct 2015 07:28:00 GMT", ""), std::nullopt);
  EXPECT_EQ(requested_pause("-1", "\"api\";r=3"), std::nullopt);
  EXPECT_EQ(requested_pause("", ""), std::nullopt);
}

}  // namespace
}  // namespace mlxlm::hub
