#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "mlxlm/error.h"

namespace mlxlm::text {
namespace {

/// Feeds pieces, then ends; what came out before the end stands in `early`.
std::string run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
                std::optional<size_t>* matched = nullptr, std::string* early = nullptr) {
  StopMatcher matcher(stops);
  std::string out;
  for (const std::string& piece : pieces) out += matcher.feed(piece);
  if (early != nullptr) *early = out;
  out += matcher.flush();
  if (matched != nullptr) *matched = matcher.matched();
  return out;
}

/// Calls check with every way of cutting text into pieces.
template <typename Check>
void for_all_cuts(const std::string& text, Check check) {
  for (uint32_t cuts = 0; cuts < (1u << (text.size() - 1)); ++cuts) {
    std::vector<std::string> pieces(1);
    for (size_t i = 0; i < text.size(); ++i) {
      pieces.back() += text[i];
      if (i + 1 < text.size() && (cuts >> i & 1) != 0) pieces.emplace_back();
    }
    check(pieces);
  }
}

TEST(StopMatcher, EveryCutGivesTheTextBeforeTheStop) {
  for_all_cuts("alpha beta gamma", [](const std::vector<std::string>& pieces) {
    std::optional<size_t> matched;
    EXPECT_EQ(run({"beta gamma"}, pieces, &matched), "alpha ");
    EXPECT_EQ(matched, 0u);
  });
}

TEST(StopMatcher, UnfinishedMatchIsFlushedAtTheEnd) {
  std::optional<size_t> matched;
  std::string early;
  EXPECT_EQ(run({"beta gamma"}, {"alpha be", "ta gam"}, &matched, &early), "alpha beta gam");
  EXPECT_EQ(early, "alpha ");
  EXPECT_FALSE(matched);
}

TEST(StopMatcher, EarliestMatchWins) {
  std::optional<size_t> matched;
  EXPECT_EQ(run({"gamma", "beta"}, {"alpha beta gamma"}, &matched), "alpha ");
  EXPECT_EQ(matched, 1u);
  // Two that end together: the one that began first.
  EXPECT_EQ(run({"beta", "alpha beta"}, {"x alpha beta"}, &matched), "x ");
  EXPECT_EQ(matched, 1u);
  for_all_cuts("xabcdef", [](const std::vector<std::string>& pieces) {
    std::optional<size_t> first;
    EXPECT_EQ(run({"abcdef", "cd"}, pieces, &first), "xab");
    EXPECT_EQ(first, 1u);
  });
}

TEST(StopMatcher, OverlappingBeginnings) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b", "c"}), "a");
  EXPECT_EQ(run({"abab!", "ba?"}, {"ababa?"}), "aba");
  EXPECT_EQ(run({"\n\n", "\nUser:"}, {"hi\n", "User", ":x"}), "hi");
}

TEST(StopMatcher, GivesTextOutAsSoonAsItIsSafe) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.feed("aE"), "a");
  EXPECT_EQ(matcher.feed("x"), "Ex");
  EXPECT_EQ(matcher.feed("EN"), "");
  EXPECT_EQ(matcher.feed("E"), "EN");
  EXPECT_EQ(matcher.feed("ND tail"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.feed("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, NulAndUnicodeAndNoStops) {
  EXPECT_EQ(run({std::string("\0b", 2)}, {std::string("a\0", 2), "bc"}), "a");
  EXPECT_EQ(run({"é!"}, {"xè", "é", "!"}), "xè");
  EXPECT_EQ(run({}, {"anything"}), "anything");
  EXPECT_THROW(StopMatcher({"a", ""}), Error);
}

TEST(StopMatcher, AgreesWithASearchInTheWholeText) {
  std::mt19937 random(7);
  const auto text_of = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> stops = {text_of(1 + random() % 5), text_of(1 + random() % 5), text_of(6)};
    const std::string text = text_of(random() % 24);
    std::string expected = text;
    for (size_t end = 1; end <= text.size() && expected.size() == text.size(); ++end) {
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop)) {
          expected.resize(std::min(expected.size(), end - stop.size()));
        }
      }
    }
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random() % 4));
      at += pieces.back().size();
    }
    EXPECT_EQ(run(stops, pieces), expected) << text << " / " << stops[0] << " " << stops[1] << " " << stops[2];
  }
}

}  // namespace
}  // namespace mlxlm::text
