#include <ctime>
#include <map>
#include <regex>
#include <set>

#include "sampling/test_grammars.h"

namespace mlxlm {
namespace {

using Kind = Grammar::Kind;

/// Every text that some choice of ids leads to.
void explore(Request& request, std::map<std::string, int>& texts) {
  const std::vector<int32_t> ids = request.admitted();
  ASSERT_FALSE(ids.empty()) << "a dead end after " << request.text();
  const size_t depth = request.tokens().size() - 3;
  for (const int32_t id : ids) {
    request.add(id);
    if (id == bytes().eos) {
      ++texts[request.text()];
    } else {
      explore(request, texts);
    }
    request.truncate(depth);
  }
}

void expect_person(const std::string& text) {
  const Json person = Json::parse(text);
  for (const auto& [key, value] : person.items()) {
    EXPECT_TRUE(key == "name" || key == "age" || key == "kind" || key == "tags") << text;
  }
  EXPECT_TRUE(person.at("name").is_string()) << text;
  EXPECT_TRUE(person.at("age").get<double>() >= 0 && person.at("age").get<double>() <= 120) << text;
  EXPECT_TRUE(person.at("kind").is_null() || person.at("kind") == "cat" || person.at("kind") == "dog") << text;
  EXPECT_LE(person.value("tags", Json::array()).size(), 2u) << text;
}

TEST(Grammar, RandomWalksThroughASchemaAreValid) {
  std::set<std::string> texts;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Request request(*bytes().tokenizer, {.kind = Kind::json_schema, .source = kPerson});
    const std::string text = walk(request, seed);
    expect_person(text);
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 35u) << "the walks are not random";
}

TEST(Grammar, RandomWalksThroughAnyObjectParse) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Request request(*bytes().tokenizer, {.kind = Kind::json_object});
    EXPECT_TRUE(Json::parse(walk(request, seed, 15)).is_object());
  }
}

TEST(Grammar, RandomWalksThroughAnExpressionMatchAllOfIt) {
  for (const char* expression :
       {"a{2,5}b?", "(ab|12)+x", "[0-9]{4}-(0[1-9]|1[0-2])", "^(yes|no)$", "x*", "\"[a-z ]{0,3}\""}) {
    const std::regex whole(expression, std::regex::ECMAScript);
    for (uint32_t seed = 0; seed < 8; ++seed) {
      Request request(*bytes().tokenizer, {.kind = Kind::regex, .source = expression});
      const std::string text = walk(request, seed, 8);
      EXPECT_TRUE(std::regex_match(text, whole)) << expression << " does not match " << text;
    }
  }
}

TEST(Grammar, EveryAdmittedTokenLeadsToAChoiceAndEveryChoiceIsReached) {
  const std::vector<std::string> choices = {"a", "ab", "aé", "😀", "x/\\\"{}\n.", ""};
  Request request(*bytes().tokenizer, {.kind = Kind::choice, .choices = choices});
  std::map<std::string, int> texts;
  explore(request, texts);
  std::set<std::string> reached;
  for (const auto& [text, ways] : texts) reached.insert(text);
  EXPECT_EQ(reached, std::set<std::string>(choices.begin(), choices.end()));
  EXPECT_EQ(texts["ab"], 2) << "a|b and ab";
  EXPECT_EQ(texts["aé"], 2) << "a|C3|A9 and aC3|A9";
  EXPECT_EQ(texts["😀"], 2) << "F0 or F09F; what follows is then forced";
}

TEST(Grammar, LarkRulesWithRecursion) {
  const std::string lark = "start: pair\npair: \"(\" (pair | WORD) \")\"\nWORD: /[ab]{1,2}/\n";
  for (uint32_t seed = 0; seed < 10; ++seed) {
    Request request(*bytes().tokenizer, {.kind = Kind::lark, .source = lark});
    std::mt19937 random(seed);
    int depth = 0;
    while (request.tokens().back() != bytes().eos) {
      std::vector<int32_t> ids = request.admitted();
      if (depth > 5) std::erase(ids, '(');
      depth += ids.size() > 1;
      request.add(ids[random() % ids.size()]);
    }
    std::string text = request.text();
    const auto open = static_cast<size_t>(std::ranges::count(text, '('));
    EXPECT_EQ(text.find_last_of('('), open - 1) << text;
    EXPECT_EQ(text.size() - text.find(')'), open) << text;
  }
}

TEST(Grammar, EosIsAdmittedExactlyWhereTheTextMayEnd) {
  Request request(*bytes().tokenizer, {.kind = Kind::regex, .source = "c{2,3}"});
  const std::vector<bool> expected = {false, false, true, true};
  for (size_t n = 0; n < expected.size(); ++n) {
    EXPECT_EQ(request.may_end(), expected[n]) << n;
    if (n + 1 < expected.size()) request.add('c');
  }
  EXPECT_EQ(request.admitted(), std::vector<int32_t>{bytes().eos});
  request.add(bytes().eos);
  EXPECT_EQ(request.admitted(), std::vector<int32_t>{bytes().eos}) << "after the end only EOS";
}

TEST(Grammar, EosMayBeSeveralIdsOrdinaryTokensAndPaddingRows) {
  const int32_t padding = bytes().tokenizer->vocab_size() + 2;
  Request request(*bytes().tokenizer, {.kind = Kind::regex, .source = "c{2}\n*"}, {'\n', bytes().eos, padding});
  EXPECT_EQ(request.admitted(), std::vector<int32_t>{'c'});
  request.write("cc");
  EXPECT_EQ(request.admitted(), (std::vector<int32_t>{'\n', bytes().eos, padding}));
  Request within(*bytes().tokenizer, {.kind = Kind::regex, .source = "\n{2}x"}, {'\n', bytes().eos});
  EXPECT_THROW(within.admitted(), Error) << "the grammar asks for an EOS inside the text, and there is no way round it";
}

TEST(Grammar, SpecialTokensAreNoText) {
  Request any(*bytes().tokenizer, {.kind = Kind::regex, .source = "(?s).*"});
  std::vector<int32_t> ids = any.admitted();
  EXPECT_EQ(std::ranges::count(ids, bytes().tool), 0);
  EXPECT_EQ(std::ranges::count(ids, 0xFF), 0) << "a byte that no text has";
  EXPECT_EQ(ids.back(), bytes().eos) << "no padding rows";
  Request named(*bytes().tokenizer, {.kind = Kind::lark, .source = "start: <|tool|> \"x\" <|end|>"});
  EXPECT_EQ(named.admitted(), std::vector<int32_t>{bytes().tool});
  named.add(bytes().tool);
  EXPECT_EQ(named.admitted(), std::vector<int32_t>{'x'});
  named.add('x');
  EXPECT_EQ(named.admitted(), std::vector<int32_t>{bytes().eos});
  // A text that looks like a special token is written as text.
  Request text(*bytes().tokenizer, {.kind = Kind::choice, .choices = {"<|tool|>"}});
  std::map<std::string, int> texts;
  explore(text, texts);
  EXPECT_EQ(texts, (std::map<std::string, int>{{"<|tool|>", 1}}));
}

TEST(Grammar, WhereOneTextIsLeftTheTokenizersOwnTokensAreForced) {
  Request request(*bytes().tokenizer, {.kind = Kind::json_schema, .source = R"({"const": [true, "zz"]})"});
  std::string written;
  int forced = 0;
  while (request.tokens().back() != bytes().eos) {
    const std::optional<int32_t> token = request.processor().forced_token(request.tokens());
    const std::vector<int32_t> ids = request.admitted();
    EXPECT_EQ(token.has_value(), ids.size() == 1);
    if (token) {
      EXPECT_EQ(ids, std::vector<int32_t>{*token});
    }
    forced += token.has_value();
    request.add(ids[0]);
  }
  EXPECT_EQ(Json::parse(request.text()), Json::parse(R"([true, "zz"])"));
  EXPECT_GT(forced, 4);
}

TEST(Grammar, ALongForcedTextTakesItsTokensInTime) {
  std::string text(20000, 'z');
  for (size_t i = 0; i < text.size(); i += 7) text[i] = ' ';
  Request request(*bytes().tokenizer, {.kind = Kind::choice, .choices = {text}});
  const std::clock_t start = std::clock();  // of the processor: the machine may be busy
  for (size_t i = 0; i < 2000; ++i) request.add(request.processor().forced_token(request.tokens()).value());
  EXPECT_EQ(request.text(), text.substr(0, request.text().size()));
  // Cutting all of the text again for each token would take minutes.
  EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);
}

TEST(Grammar, ClonesAreIndependent) {
  Request request(*bytes().tokenizer, {.kind = Kind::json_schema, .source = kPerson});
  request.write("{\"name\":\"");
  const std::vector<int32_t> before = request.admitted();
  const std::unique_ptr<LogitsProcessor> draft = request.processor().clone();
  ASSERT_NE(draft, nullptr);
  std::vector<int32_t> drafted = request.tokens();
  for (const char c : std::string("ab\",\"age\":1")) drafted.push_back(c);
  const std::vector<int32_t> there = request.admitted_by(*draft, drafted);
  EXPECT_NE(there, before);
  EXPECT_EQ(request.admitted(), before);
  Request alone(*bytes().tokenizer, {.kind = Kind::json_schema, .source = kPerson});
  EXPECT_EQ(alone.admitted_by(alone.processor(), drafted), there);
}

TEST(Grammar, AHistoryThatDoesNotContinueStartsAgainAfterThePrompt) {
  Request request(*bytes().tokenizer, {.kind = Kind::regex, .source = "ab12|ba"});
  request.write("ab1");
  EXPECT_EQ(request.admitted(), std::vector<int32_t>{'2'});
  request.truncate(0);
  request.write("b");
  EXPECT_EQ(request.admitted(), std::vector<int32_t>{'a'});
  request.truncate(0);
  EXPECT_EQ(request.admitted(), (std::vector<int32_t>{'a', 'b', 256}));
  request.write("ba");
  EXPECT_TRUE(request.may_end());
  request.start();  // the next request
  EXPECT_EQ(request.admitted(), (std::vector<int32_t>{'a', 'b', 256}));
  const std::vector<int32_t> other = {7, 7};
  EXPECT_NE(message_of([&] { request.admitted_by(request.processor(), other); }).find("the prompt"), std::string::npos);
}

TEST(Grammar, WithoutStartTheFirstHistoryIsThePrompt) {
  const std::shared_ptr<LogitsProcessor> processor =
      constrain(*bytes().tokenizer, {.kind = Kind::choice, .choices = {"x"}});
  const std::vector<int32_t> prompt = {'x', 'x'};
  EXPECT_EQ(processor->forced_token(prompt), 'x');
  const std::vector<int32_t> tokens = {'x', 'x', 'x'};
  EXPECT_EQ(processor->forced_token(tokens), bytes().eos);
}

TEST(Grammar, ATokenThatDoesNotFollowFailsTheRequestAlone) {
  Request request(*bytes().tokenizer, {.kind = Kind::regex, .source = "ab"});
  request.write("ax");
  const std::string message = message_of([&] { request.admitted(); });
  EXPECT_EQ(message,
            "grammar: reading the text: the token does not continue the text (token 120, x, number 2 of what was "
            "generated)");
  Request next(*bytes().tokenizer, {.kind = Kind::regex, .source = "ab"});
  next.write("ab");
  EXPECT_TRUE(next.may_end());
  next.write("b");
  EXPECT_NE(message_of([&] { next.admitted(); }).find("only its end may follow"), std::string::npos);
}

TEST(Grammar, TheFirstTokenOfSentencePieceLosesItsSpace) {
  const SentencePieceModel model;
  Request request(*model.tokenizer, {.kind = Kind::choice, .choices = {"yes", " x", "é"}});
  const std::vector<int32_t> ids = request.admitted();
  for (const char* token : {"▁yes", "yes", "y", "▁▁x", "▁é", "<0x79>", "<0xC3>"}) {
    EXPECT_EQ(std::ranges::count(ids, model.id(token)), 1) << token;
  }
  for (const char* token : {"▁", "▁no", "<0x20>"}) EXPECT_EQ(std::ranges::count(ids, model.id(token)), 0) << token;
  for (const int32_t id : ids) {
    Request one(*model.tokenizer, {.kind = Kind::choice, .choices = {"yes", " x", "é"}});
    one.add(id);
    std::mt19937 random(1);
    while (!one.may_end()) {
      const std::vector<int32_t> next = one.admitted();
      one.add(next[random() % next.size()]);
    }
    EXPECT_TRUE(one.text() == "yes" || one.text() == " x" || one.text() == "é") << one.text();
  }
  Request later(*model.tokenizer, {.kind = Kind::regex, .source = "y yes"});
  later.add(model.id("y"));
  EXPECT_EQ(std::ranges::count(later.admitted(), model.id("▁yes")), 1) << "not the first: its space counts";
  EXPECT_EQ(std::ranges::count(later.admitted(), model.id("yes")), 0);
}

}  // namespace
}  // namespace mlxlm
