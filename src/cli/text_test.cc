// Suggestions, prompts and progress: the parts of the command line that are functions of text.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/suggest.h"
#include "mlxlm/error.h"

namespace mlxlm::cli {
namespace {

TEST(Suggest, FindsTheNearest) {
  const std::vector<std::string> names = {"--prompt", "--prompt-file", "--max-tokens", "--temp", "-m"};
  EXPECT_EQ(suggest("--promt", names), "--prompt");
  EXPECT_EQ(suggest("--max_tokens", names), "--max-tokens");
  EXPECT_EQ(suggest("--mxa-tokens", names), "--max-tokens");
  EXPECT_EQ(suggest("--temperature", names), "--temp");
  EXPECT_EQ(suggest("--zzzzzzzz", names), "");
  EXPECT_EQ(suggest(std::string(100000, 'x'), names), "");
}

TEST(Prompt, UnescapesAsTheReference) {
  EXPECT_EQ(unescape_prompt("a\\nb\\tc"), "a\nb\tc");
  EXPECT_EQ(unescape_prompt("a\\\\n"), "a\\\n");  // Python's replace() knows no escaped backslash either
  EXPECT_EQ(unescape_prompt("\\r\\"), "\\r\\");
  EXPECT_EQ(unescape_prompt(""), "");
}

TEST(Prompt, ParsesNumbers) {
  EXPECT_EQ(parse_numbers("--prompt-ids", "5,7, 9"), (std::vector<int32_t>{5, 7, 9}));
  EXPECT_EQ(parse_numbers("--prompt-ids", "010"), (std::vector<int32_t>{10}));
  for (const char* wrong : {"", "5,", ",5", "5;7", "-1", "1.5", "99999999999", "5 7", "0x10"}) {
    EXPECT_THROW(parse_numbers("--prompt-ids", wrong), Error) << wrong;
  }
  try {
    parse_numbers("--prompt-ids", "5,x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--prompt-ids: expected whole numbers separated by commas, such as 5,7,9; entry 2 is 'x'");
  }
}

TEST(Prompt, PrintableHidesControlCharactersAndWrongBytes) {
  EXPECT_EQ(printable("héllo"), "héllo");
  EXPECT_EQ(printable("a\x1b[31m\n"), "a\\x1b[31m\\x0a");
  EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
  const std::string cut = printable(std::string(79, 'a') + "é" + std::string(50, 'b'));
  EXPECT_EQ(cut, std::string(79, 'a') + "é…");  // never inside a character
}

TEST(Progress, LineShowsTheShare) {
  EXPECT_EQ(progress_line("Reading", 0, 10), "Reading [>                             ]   0 %");
  EXPECT_EQ(progress_line("Reading", 5, 10), "Reading [===============>              ]  50 %");
  EXPECT_EQ(progress_line("Reading", 10, 10), "Reading [==============================] 100 %");
  EXPECT_EQ(progress_line("Reading", 9999, 10000), "Reading [=============================>]  99 %");
  EXPECT_EQ(progress_line("Reading", 7, 0), progress_line("Reading", 1, 1));
}

}  // namespace
}  // namespace mlxlm::cli
