#include "cli/batch_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "mlxlm/error.h"

namespace mlxlm::cli {
namespace {

class BatchFiles : public ::testing::Test {
 protected:
  BatchFiles() : path_(testing::TempDir() + "batch_files_" + std::to_string(::getpid())) {}
  ~BatchFiles() override { std::filesystem::remove(path_); }

  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string content() const {
    std::ostringstream out;
    out << std::ifstream(path_, std::ios::binary).rdbuf();
    return out.str();
  }
  std::vector<std::string> lines() {
    LineReader reader(path_);
    std::vector<std::string> all;
    for (std::string line; reader.read(line, true) == LineReader::Event::line;) all.push_back(line);
    return all;
  }

  std::string path_;
};

TEST_F(BatchFiles, LinesOfEveryLength) {
  const std::string longest(200000, 'x');  // more than is read at once
  write("a\n\n  \nb\r\n" + longest + "\nlast");
  EXPECT_EQ(lines(), (std::vector<std::string>{"a", "b", longest, "last"}));
  write("");
  EXPECT_TRUE(lines().empty());
}

TEST_F(BatchFiles, LineNumbersAndBytes) {
  write("a\n\nbc\nd");
  LineReader reader(path_);
  std::string line;
  ASSERT_EQ(reader.read(line, true), LineReader::Event::line);
  EXPECT_EQ(reader.bytes_read(), 2);
  ASSERT_EQ(reader.read(line, true), LineReader::Event::line);
  EXPECT_EQ(line, "bc");
  EXPECT_EQ(reader.line_number(), 3);
  EXPECT_EQ(reader.bytes_read(), 6);
  EXPECT_TRUE(reader.last_was_whole());
  ASSERT_EQ(reader.read(line, true), LineReader::Event::line);
  EXPECT_FALSE(reader.last_was_whole());
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
  EXPECT_EQ(reader.read(line, true), LineReader::Event::end);
}

TEST_F(BatchFiles, WholeAnswersAreKept) {
  write("one\ntwo\nthr");
  std::vector<std::string> kept;
  {
    AnswerFile answers(path_, true, [&](const std::string& line, int64_t) { kept.push_back(line); });
    answers.write("three\n");
  }
  EXPECT_EQ(kept, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(content(), "one\ntwo\nthree\n");
  const auto ignore = [](const std::string&, int64_t) {};
  EXPECT_THROW(AnswerFile(path_, false, ignore), Error);
  EXPECT_EQ(content(), "one\ntwo\nthree\n");
}

TEST_F(BatchFiles, ARefusedFileIsLeftAsItIs) {
  write("one\ntw");
  EXPECT_THROW(AnswerFile(path_, true, [](const std::string&, int64_t) { throw std::runtime_error("not mine"); }),
               std::runtime_error);
  EXPECT_EQ(content(), "one\ntw");
}

}  // namespace
}  // namespace mlxlm::cli
