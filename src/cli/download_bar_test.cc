#include "cli/download_bar.h"

#include <gtest/gtest.h>

namespace mlxlm::cli {
namespace {

using Stage = DownloadProgress::Stage;

TEST(DownloadLine, SaysHowMuchHowFastAndHowLong) {
  const DownloadProgress half{Stage::downloading, 1'200'000'000, 2'400'000'000, 1'000'000'000, 3, 9};
  const std::string bar = "Downloading [===============>              ]  50 %  1.2 GB of 2.4 GB";
  EXPECT_EQ(download_line(half, 0), bar);
  EXPECT_EQ(download_line(half, 50e6), bar + ", 50.0 MB/s, 24 s left");
  EXPECT_EQ(download_line(half, 10e6), bar + ", 10.0 MB/s, 2 min 00 s left");
  EXPECT_EQ(download_line(half, 100e3), bar + ", 100 KB/s, 3 h 20 min left");
}

TEST(DownloadLine, CheckingHasNoRate) {
  const DownloadProgress start{Stage::checking, 0, 2'400'000'000, 0, 0, 1};
  EXPECT_EQ(download_line(start, 50e6), "Checking [>                             ]   0 %  0 bytes of 2.4 GB");
}

TEST(DownloadLine, NothingToDownload) {
  EXPECT_EQ(download_line({}, 0), "Downloading [>                             ]   0 %  0 bytes of 0 bytes");
}

}  // namespace
}  // namespace mlxlm::cli
