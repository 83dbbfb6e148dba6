#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "mlxlm/error.h"
#include "text/test_tokenizers.h"
#include "text/tokenizer_impl.h"

namespace mlxlm::text {
namespace {

using io::Json;

/// Renders one template over messages given as JSON.
std::string render(const std::string& source, const std::string& messages = "[]", ChatTemplateOptions options = {},
                   ChatTemplateContext context = {}) {
  if (context.special_tokens.is_null()) context.special_tokens = Json::object();
  options.chat_template = source;
  return render_chat(ChatTemplateSet(), messages, options, context);
}

std::string render_with(const std::string& source, const std::string& variables) {
  return render(source, "[]", {.variables_json = variables});
}

std::string failure_of(const std::string& source, const std::string& messages = "[]",
                       ChatTemplateOptions options = {}) {
  try {
    return "no failure: " + render(source, messages, std::move(options));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_value) << error.what();
    return error.what();
  }
}

TEST(ChatTemplate, TojsonWritesAsPythonDoes) {
  EXPECT_EQ(render_with("{{ x | tojson }}", R"({"x": {"b":1,"a":"—‹&/"}})"), R"({"b": 1, "a": "—‹&/"})");
  EXPECT_EQ(render_with("{{ x | tojson(indent=2) }}", R"({"x": {"b": [1, 2.0], "a": {}}})"),
            "{\n  \"b\": [\n    1,\n    2.0\n  ],\n  \"a\": {}\n}");
  EXPECT_EQ(
      render_with("{{ x | tojson(separators=(',', ':'), sort_keys=True) }}", R"({"x": {"b": [1, 2], "a": null}})"),
      R"({"a":null,"b":[1,2]})");
  EXPECT_EQ(render_with("{{ x | tojson(ensure_ascii=True) }}", R"({"x": "é😀<'>"})"), R"("\u00e9\ud83d\ude00<'>")");
  EXPECT_EQ(render("{{ {'k': 'v', 'n': none, 't': true} | tojson }}"), R"({"k": "v", "n": null, "t": true})");
  EXPECT_NE(failure_of("{{ missing | tojson }}").find("not JSON serializable"), std::string::npos);
}

TEST(ChatTemplate, BreakAndContinueInALoop) {
  EXPECT_EQ(
      render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}"
             "{{ i }}{% endfor %}"),
      "023");
}

TEST(ChatTemplate, RaiseExceptionCarriesItsOwnMessage) {
  EXPECT_EQ(failure_of("{{ raise_exception('Roles must alternate: user, assistant') }}"),
            "the given chat template: the chat template refuses these messages: Roles must alternate: user, assistant");
}

TEST(ChatTemplate, StrftimeNowUnderAFixedClock) {
  ChatTemplateContext context;
  context.fixed_time = 1721995506;  // 2024-07-26 12:05:06 UTC
  const auto at = [&](const std::string& format) {
    return render("{{ strftime_now('" + format + "') }}", "[]", {}, context);
  };
  EXPECT_EQ(at("%H:%M:%S"), "12:05:06");
  EXPECT_EQ(at("%d %b %Y"), "26 Jul 2024");
  EXPECT_EQ(at("%B %d, %Y %f%%"), "July 26, 2024 000000%");
  EXPECT_EQ(at(""), "");
}

TEST(ChatTemplate, WhitespaceAroundBlocksIsTrimmed) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a {{- 'b' -}} c"), "abc");
}

TEST(ChatTemplate, PythonValuesPrintAsInPython) {
  EXPECT_EQ(render_with("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ f }}|{{ g }}|{{ h }}",
                        R"({"a": null, "b": true, "c": 1.0, "d": 1e16, "e": 0.00001, "f": [1, "x", null, false],)"
                        R"( "g": {"k": "it's"}})"),
            "None True 1.0 1e+16 1e-05 [1, 'x', None, False]|{'k': \"it's\"}|");
  EXPECT_EQ(render("{{ 'n=' ~ none ~ true ~ 1.5 }}"), "n=NoneTrue1.5");
}

TEST(ChatTemplate, PythonMethodsAndTests) {
  EXPECT_EQ(
      render("{{ ' aXa '.strip().upper().replace('X', '-') }}{{ 'a,b'.split(',')[-1] }}{{ 'ab'.startswith('a') }}"),
      "A-AbTrue");
  EXPECT_EQ(render("{{ 'k=v=w'.partition('=')[2] }} {{ 'a b c'.rsplit(' ', 1) }} {{ 'xay'.removeprefix('x') }}"),
            "v=w ['a b', 'c'] ay");
  EXPECT_EQ(render("{% for k, v in {'items': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}"), "items1b2");
  EXPECT_EQ(
      render_with("{{ x.get('a') }} {{ x.get('b', 7) }} {{ x is mapping }} {{ 'x' is sequence }} {{ [] is iterable }}",
                  R"({"x": {}})"),
      "None 7 True True True");
  EXPECT_EQ(render("{{ 'abcdef'[1:-1:2] }}{{ [1,2,3][::-1] }}{{ (undefined_name is defined) }}"), "bd[3, 2, 1]False");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for i in [1,2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"),
            "3");
}

TEST(ChatTemplate, UndefinedIsEmptyButHasNoAttributes) {
  EXPECT_EQ(render("[{{ nothing }}]{% for x in nothing %}{% endfor %}"), "[]");
  EXPECT_NE(failure_of("{{ nothing.more }}").find("undefined"), std::string::npos);
}

TEST(ChatTemplate, GenerationTagsRenderTheirBody) {
  EXPECT_EQ(render("{% for m in messages %}{%- if m.role == 'assistant' -%}{%- generation -%} {{ m.content }} "
                   "{%- endgeneration -%}{% else %}{{ m.content }}{% endif %}{% endfor %}{# {% generation %} #}",
                   R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])"),
            "qa");
}

TEST(ChatTemplate, EndlessTemplatesEnd) {
  EXPECT_NE(failure_of("{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}")
                .find("does not come to an end"),
            std::string::npos);
  EXPECT_NE(failure_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("recursion"), std::string::npos);
}

TEST(ChatTemplate, BrokenTemplatesNameTheLine) {
  const std::string message = failure_of("a\nb {% if %}");
  EXPECT_TRUE(message.starts_with("the given chat template: the chat template does not compile: line 2: ")) << message;
  EXPECT_NE(failure_of("x\n{{ 1 | no_such_filter }}").find("line 2"), std::string::npos);
  EXPECT_NE(failure_of(std::string(5000, '(')).size(), 0u);
  EXPECT_NE(failure_of("{{ " + std::string(5000, '(') + "1 }}").find("recursion"), std::string::npos);
}

const char* const kPlain = "{% for m in messages %}[{{ m.role }}] {{ m['content'] }}{% endfor %}";
const char* const kStrict = "{% for m in messages %}<{{ m.content + '>' }}{% endfor %}";
const char* const kLists =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'text' %}({{ p.text }}){% endif %}{% endfor %}{% endif %}{% endfor %}";

TEST(ChatTemplate, NullOrAbsentContentIsEmpty) {
  for (const char* messages : {R"([{"role": "assistant", "content": null}])", R"([{"role": "assistant"}])"}) {
    EXPECT_EQ(render(kPlain, messages), "[assistant] ");
    EXPECT_EQ(render(kStrict, messages), "<>");
  }
}

TEST(ChatTemplate, TextPartsAreJoinedUnlessTheTemplateHandlesThem) {
  const std::string messages =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  EXPECT_EQ(render(kPlain, messages), "[user] ab");
  EXPECT_EQ(render(kStrict, messages), "<ab>");
  EXPECT_EQ(render("{{ messages[0].content | tojson }}", messages), "\"ab\"");
  EXPECT_EQ(render(kLists, messages), "(a)(b)");
  const std::string image = R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "b"}]}])";
  EXPECT_EQ(render(kLists, image), "(b)");
  EXPECT_EQ(failure_of(kPlain, image),
            "messages[0].content: the chat template takes text only; expected parts of type text, got "
            R"({"type":"image"})");
}

TEST(ChatTemplate, ListsAreDecidedForEachRole) {
  const std::string user_only =
      "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}({{ p.text }}){% endfor %}"
      "{% else %}{{ m.role + m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(render(user_only, R"([{"role": "user", "content": [{"type": "text", "text": "u"}]},)"
                              R"( {"role": "assistant", "content": [{"type": "text", "text": "x"},)"
                              R"( {"type": "text", "text": "y"}]}])"),
            "(u)assistantxy");
}

TEST(ChatTemplate, NullMembersAreLeftOutAndReasoningHasAllNames) {
  EXPECT_EQ(
      render("{{ messages[0].tool_calls is defined }}{{ messages[0].reasoning_content }}{{ messages[0].thinking }}",
             R"([{"role": "assistant", "content": "", "tool_calls": null, "reasoning": "why"}])"),
      "Falsewhywhy");
}

TEST(ChatTemplate, ContinueFinalMessage) {
  const std::string source =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt "
      "%}<|assistant|>"
      "{% endif %}";
  const std::string messages = R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "Sure,  "}])";
  EXPECT_EQ(render(source, messages, {.continue_final_message = true}), "<|user|>q<|end|><|assistant|>Sure,  ");
  EXPECT_EQ(
      render("{% for m in messages %}{{ m.content | trim }}!{% endfor %}", messages, {.continue_final_message = true}),
      "q!Sure,");
  EXPECT_NE(failure_of("{{ messages[0].content }}", messages, {.continue_final_message = true}).find("does not appear"),
            std::string::npos);
  EXPECT_NE(failure_of(source, "[]", {.continue_final_message = true}).find("at least one message"), std::string::npos);
}

TEST(ChatTemplate, VariablesToolsAndDocuments) {
  EXPECT_EQ(render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking }}"),
            "TrueTrueTrueFalse");
  EXPECT_EQ(render("{{ tools[0].name }}{{ documents[0].title }}{{ enable_thinking }}", "[]",
                   {.tools_json = R"([{"name": "f"}])",
                    .documents_json = R"([{"title": "t"}])",
                    .variables_json = R"({"enable_thinking": true})"}),
            "ftTrue");
  EXPECT_NE(failure_of("", "[]", {.variables_json = R"({"messages": []})"}).find("argument of its own"),
            std::string::npos);
  EXPECT_NE(failure_of("", "[]", {.variables_json = "[1]"}).find("expected a JSON object"), std::string::npos);
  EXPECT_NE(failure_of("", "[]", {.tools_json = "{}"}).find("tools: expected a JSON array"), std::string::npos);
}

TEST(ChatTemplate, BadMessagesNameThePlace) {
  EXPECT_EQ(failure_of(kPlain, "{}"), "messages: expected a JSON array, got {}");
  EXPECT_EQ(failure_of(kPlain, R"([{"role": "user"}, 5])"), "messages[1]: expected an object, got 5");
  EXPECT_EQ(failure_of(kPlain, R"([{"content": "x"}])"),
            "messages[0]: expected a text \"role\", got {\"content\":\"x\"}");
  EXPECT_EQ(failure_of(kPlain, R"([{"role": "user", "content": 5}])"),
            "messages[0].content: expected text, a list of parts or null, got 5");
}

TEST(ChatTemplate, NulBytesPassThrough) {
  EXPECT_EQ(render("{{ messages[0].content }}", R"([{"role": "user", "content": "a\u0000b"}])"),
            std::string("a\0b", 3));
}

TEST(ChatTemplateSet, Precedence) {
  const Json named = Json::parse(R"({"chat_template": [{"name": "default", "template": "config"},
                                                       {"name": "tool_use", "template": "tools"}]})");
  const auto text = [](const ChatTemplateSet& set, bool tools) { return set.choose(tools)->source(); };
  TestFolder folder;
  folder.write("chat_template.json", R"({"chat_template": "last"})");
  EXPECT_EQ(text(ChatTemplateSet::from_folder(folder.path(), Json::object()), true), "last");
  EXPECT_EQ(text(ChatTemplateSet::from_folder(folder.path(), Json{{"chat_template", "one"}}), true), "one");
  EXPECT_EQ(text(ChatTemplateSet::from_folder(folder.path(), named), false), "config");
  EXPECT_EQ(text(ChatTemplateSet::from_folder(folder.path(), named), true), "tools");
  folder.write("chat_template.jinja", "file").write("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(text(ChatTemplateSet::from_folder(folder.path(), named), false), "file");
  EXPECT_EQ(ChatTemplateSet::from_folder(folder.path(), named).find("rag")->source(), "rag");
}

TEST(ChatTemplateSet, Failures) {
  TestFolder folder;
  EXPECT_THROW(ChatTemplateSet::from_folder(folder.path(), Json::object()).choose(false), Error);
  EXPECT_THROW(ChatTemplateSet::from_folder(folder.path(), Json{{"chat_template", 5}}), Error);
  EXPECT_THROW(ChatTemplateSet::from_folder(folder.path(), Json{{"chat_template", Json::array({Json{{"name", "x"}}})}}),
               Error);
  folder.write("chat_template.jinja", "a\xFF");
  EXPECT_THROW(ChatTemplateSet::from_folder(folder.path(), Json::object()), Error);
}

}  // namespace
}  // namespace mlxlm::text
