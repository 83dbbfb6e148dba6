#include "hub/file_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "io/test_files.h"

namespace mlxlm::hub {
namespace {

TEST(FileLock, OneAtATime) {
  const io::TempFolder folder;
  const std::string path = folder.file("x.lock");
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        const FileLock lock(path, {});
        most = std::max(most.load(), ++inside);
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        --inside;
      });
    }
  }
  EXPECT_EQ(most, 1);
}

TEST(FileLock, WaitingCanBeStopped) {
  const io::TempFolder folder;
  const FileLock held(folder.file("x.lock"), {});
  std::stop_source stop;
  stop.request_stop();
  const auto thrown = io::thrown_by([&] { const FileLock lock(folder.file("x.lock"), stop.get_token()); });
  EXPECT_EQ(thrown.kind, ErrorKind::cancelled);
}

TEST(FileLock, ALockFileThatWasRemovedLocksNobodyOut) {
  const io::TempFolder folder;
  const std::string path = folder.file("x.lock");
  std::optional<FileLock> first(std::in_place, path, std::stop_token());
  std::atomic<bool> got{false};
  std::jthread waiter([&] {
    const FileLock second(path, {});
    got = std::filesystem::exists(path);  // it holds the file that others will open
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(120));  // it has the file open and waits
  std::filesystem::remove(path);
  first.reset();
  waiter.join();
  EXPECT_TRUE(got);
}

TEST(FileLock, SaysWhereItCannotBe) {
  const auto thrown = io::thrown_by([] { const FileLock lock("/nowhere/x.lock", {}); });
  EXPECT_EQ(thrown.kind, ErrorKind::io);
  EXPECT_EQ(thrown.message.find("/nowhere/x.lock: cannot create the lock"), 0u);
}

}  // namespace
}  // namespace mlxlm::hub
