#include "cli/options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <limits>

namespace mlxlm::cli {
namespace {

struct Values {
  int count = 3;
  float share = 0.5f;
  bool on = true;
  std::string text;
  std::optional<uint64_t> seed;
  std::vector<std::string> list, words;

  void parse(std::vector<std::string> args) {
    CLI::App app;
    OptionGroup group(app, "Test");
    group.integer("--count,-c", count, -1, "");
    group.real("--share", share, 0, 1, "");
    group.boolean("--on", on, "");
    group.text("--text", text, "");
    group.seed("--seed", seed, "");
    group.list("--list", list, 1, "");
    group.list("--words", words, 1000, "");
    add_refused(app, refused_generation_flags());
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  }
};

std::string message(std::vector<std::string> args) {
  try {
    Values().parse(std::move(args));
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Options, ReadValues) {
  Values values;
  values.parse({"-c", "-1", "--share", "0.25", "--on", "False", "--text", "-x", "--seed", "18446744073709551615"});
  EXPECT_EQ(values.count, -1);
  EXPECT_EQ(values.share, 0.25f);
  EXPECT_FALSE(values.on);
  EXPECT_EQ(values.text, "-x");
  EXPECT_EQ(values.seed, std::numeric_limits<uint64_t>::max());
}

TEST(Options, LastOneCounts) {
  Values values;
  values.parse({"--count", "4", "--count", "010"});
  EXPECT_EQ(values.count, 10);  // decimal, whatever the zeros
}

TEST(Options, ListsTakeTextAsItIs) {
  Values values;
  values.parse({"--list", "[A,B]", "--list", "{}", "--list", "", "--words", "[INST]", "x", "--count", "1"});
  EXPECT_EQ(values.list, (std::vector<std::string>{"[A,B]", "{}", ""}));
  EXPECT_EQ(values.words, (std::vector<std::string>{"[INST]", "x"}));
  Values only;
  only.parse({"--list", "{}"});
  EXPECT_EQ(only.list, std::vector<std::string>{"{}"});
}

TEST(Options, WrongValuesSayWhatWasExpected) {
  EXPECT_EQ(message({"--count", "abc"}), "--count: expected a whole number of at least -1, got 'abc'");
  EXPECT_EQ(message({"--count", "-2"}), "--count: expected a whole number of at least -1, got '-2'");
  EXPECT_EQ(message({"--count", "1e3"}), "--count: expected a whole number of at least -1, got '1e3'");
  EXPECT_EQ(message({"--count", "99999999999"}), "--count: expected a whole number of at least -1, got '99999999999'");
  EXPECT_EQ(message({"--share", "1.5"}), "--share: expected a number from 0 to 1, got '1.5'");
  EXPECT_EQ(message({"--share", "nan"}), "--share: expected a number from 0 to 1, got 'nan'");
  EXPECT_EQ(message({"--on", "yes please"}), "--on: expected true or false, got 'yes please'");
  EXPECT_EQ(message({"--seed", "-1"}), "--seed: expected a whole number from 0 to 2^64 - 1, got '-1'");
  EXPECT_EQ(message({"--text", "a\xff"}), "--text: expected valid UTF-8, got 'a\\xff'");
}

TEST(Options, RefusedFlagsSayWhy) {
  for (const RefusedFlag& flag : refused_generation_flags()) {
    std::vector<std::string> args = {flag.names};
    if (flag.takes_value) args.push_back("1");
    EXPECT_EQ(message(args), std::string(flag.names) + ": " + flag.sentence);
  }
}

}  // namespace
}  // namespace mlxlm::cli
