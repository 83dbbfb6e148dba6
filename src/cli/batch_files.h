// The files of a batch: lines read as they are needed, and answers that survive an interruption.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace mlxlm::cli {

/// Lines of a file or of standard input ("-"), without their newlines; empty ones are skipped. Only one line and a
/// piece of the file are in memory.
class LineReader {
 public:
  /// Throws Error(not_found or io).
  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  enum class Event { line, end, none };
  /// The next line. none: no whole line has arrived yet, and `wait` is false or a stop was requested.
  Event read(std::string& line, bool wait, const std::stop_token& stop = {});

  int64_t line_number() const { return line_number_; }     ///< of the line read last, from 1
  int64_t bytes_read() const { return bytes_read_; }       ///< up to the end of the line read last
  int64_t bytes_total() const { return bytes_total_; }     ///< of a regular file; 0: not known
  bool last_was_whole() const { return last_was_whole_; }  ///< the line read last had its newline

 private:
  bool take_line(std::string& line);
  bool fill(bool wait);  // false: nothing to read now

  std::string path_;
  int fd_;
  bool ended_ = false;
  bool last_was_whole_ = true;
  std::string buffer_;
  size_t start_ = 0;     // of the next line in the buffer
  size_t searched_ = 0;  // no newline before this
  int64_t line_number_ = 0;
  int64_t bytes_read_ = 0;
  int64_t bytes_total_ = 0;
};

/// Answers, one line each. Every line is written whole and at once.
class AnswerFile {
 public:
  /// "-": standard output. A file must not exist yet, unless `resume`: then its whole lines are kept, and
  /// `check_line(line)` is called for each, in order. Throws Error(io or invalid_value).
  template <typename CheckLine>
  AnswerFile(const std::string& path, bool resume, CheckLine check_line) : AnswerFile(path, resume) {
    if (!resume) return;
    LineReader lines(path);
    std::string line;
    int64_t whole = 0;
    while (lines.read(line, true) == LineReader::Event::line && lines.last_was_whole()) {
      check_line(line, lines.line_number());
      whole = lines.bytes_read();
    }
    keep(whole);
  }
  ~AnswerFile();
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  void write(std::string_view line);

 private:
  AnswerFile(const std::string& path, bool resume);
  void keep(int64_t bytes);  // drops what follows

  std::string path_;
  int fd_;  // -1: standard output
};

}  // namespace mlxlm::cli
