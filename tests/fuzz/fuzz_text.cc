// Streams of text: what comes out does not depend on how the input was cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/stop_matcher.h"
#include "text/utf8.h"

namespace {

/// Piece lengths from the input itself: the next byte's low bits, never 0.
class Cutter {
 public:
  explicit Cutter(std::string_view cuts) : cuts_(cuts) {}
  std::string_view next(std::string_view& rest) {
    const size_t want = cuts_.empty() ? 1 : 1 + static_cast<uint8_t>(cuts_[at_++ % cuts_.size()]) % 7u;
    const std::string_view piece = rest.substr(0, want);
    rest.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view cuts_;
  size_t at_ = 0;
};

/// Everything up to the next newline byte, which is consumed.
std::string_view take_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  return line;
}

void check_stops(const std::vector<std::string>& stops, std::string_view cuts, std::string_view text) {
  mlxlm::text::StopMatcher whole(stops);
  std::string expected = whole.feed(text);
  expected += whole.flush();

  mlxlm::text::StopMatcher pieces(stops);
  Cutter cutter(cuts);
  std::string got;
  for (std::string_view rest = text; !rest.empty();) got += pieces.feed(cutter.next(rest));
  got += pieces.flush();

  if (got != expected || whole.matched() != pieces.matched()) std::abort();
  if (!text.starts_with(got) || (!whole.stopped() && got != text)) std::abort();
  for (const std::string& stop : stops) {
    if (got.find(stop) != std::string::npos) std::abort();
  }
}

void check_utf8(std::string_view cuts, std::string_view text) {
  std::string expected, got;
  mlxlm::text::Utf8Stream whole;
  whole.append(text, expected);
  whole.flush(expected);

  mlxlm::text::Utf8Stream pieces;
  Cutter cutter(cuts);
  for (std::string_view rest = text; !rest.empty();) {
    pieces.append(cutter.next(rest), got);
    if (mlxlm::text::find_invalid_utf8(got)) std::abort();
  }
  pieces.flush(got);
  if (got != expected || mlxlm::text::find_invalid_utf8(got)) std::abort();
  if (!mlxlm::text::find_invalid_utf8(text) && got != text) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view cuts = take_line(rest);
  std::vector<std::string> stops;
  for (int i = 0; i < 3; ++i) {
    const std::string_view stop = take_line(rest);
    if (!stop.empty()) stops.emplace_back(stop);
  }
  check_stops(stops, cuts, rest);
  check_utf8(cuts, rest);
  return 0;
}
