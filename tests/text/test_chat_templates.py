"""Rendering against the chat template environment of the transformers library."""

import datetime
import json

import pytest
from transformers.utils import chat_template_utils

from chat_styles import STYLES
from probe_client import Refused
from tokenizer_kinds import byte_level_qwen

NOW = datetime.datetime(2024, 7, 6, 9, 5, 3)
TIME = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<|im_end|>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Wetter für "Köln" & <Städte>\nnow',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Stadt — 市"},
                "days": {"type": "array", "items": {"type": "integer"}},
                "items": {"type": ["string", "null"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, id):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


CHATS = {
    "user": [{"role": "user", "content": "Hi!"}],
    "system": [
        {"role": "system", "content": "  Be brief. /no_think "},
        {"role": "user", "content": "Grüße 😀 <b>&amp; 'quotes' \"double\"\n"},
        {"role": "assistant", "content": " Fine.\n\n"},
        {"role": "user", "content": "{{ not a template }} {% raw %}"},
    ],
    "thinking": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "<think>\nadd them\n</think>\n\n4"},
        {"role": "user", "content": "3+3?"},
        {"role": "assistant", "content": "6", "reasoning_content": "again\n"},
    ],
    "tools": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("get_weather", {"city": "Köln", "days": [1, 2.5], "u": None, "ok": True}, "abcdefghi")],
        },
        {"role": "tool", "content": '{"t": 21}', "tool_call_id": "abcdefghi"},
        {"role": "assistant", "content": "21 degrees."},
        {"role": "user", "content": "Thanks"},
    ],
    "two_calls": [
        {"role": "user", "content": "Both"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [call("clock", {}, "000000001"), call("get_weather", {"city": "北京"}, "000000002")],
        },
        {"role": "tool", "content": "12:00", "tool_call_id": "000000001"},
        {"role": "tool", "content": "rain", "tool_call_id": "000000002"},
    ],
    "bad_roles": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "alien", "content": "c"}],
    "empty_content": [{"role": "user", "content": ""}, {"role": "assistant"}, {"role": "user", "content": "x"}],
}

SETTINGS = {
    "plain": {},
    "prompt": {"add_generation_prompt": True},
    "tools": {"add_generation_prompt": True, "tools": [WEATHER, CLOCK]},
    "variables": {
        "add_generation_prompt": True,
        "documents": [{"title": "One", "text": "text é"}, {"title": "Two", "text": 2}],
        "variables": {"enable_thinking": False, "controls": {"length": "long"}, "date_string": "1 Jan 2000"},
    },
}


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


@pytest.fixture(scope="module")
def loaded(tmp_path_factory, probe):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = byte_level_qwen()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
    answer = probe.ask("load", folder=str(folder))
    assert answer["eos"] == [tokenizer.token_to_id("</s>")] and answer["bos"] == tokenizer.token_to_id("<s>")
    probe.tokenizer = tokenizer
    return probe


def reference(monkeypatch, source, messages, add_generation_prompt=False, tools=None, documents=None, variables=None, **more):
    """What transformers renders, or the exception. Null or absent content is "" here, other nulls are absent."""
    monkeypatch.setattr(chat_template_utils, "datetime", FixedClock)
    messages = [
        {key: value for key, value in {"role": "", "content": "", **message}.items() if value is not None}
        for message in messages
    ]
    for message in messages:
        message.setdefault("content", "")
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            [messages],
            chat_template=source,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            documents=documents,
            **{**TOKENS, "enable_thinking": True, **(variables or {})},
            **more,
        )
        return rendered[0]
    except Exception as error:
        return error


def ours(probe, source, messages, **settings):
    settings.setdefault("add_generation_prompt", False)
    try:
        return probe.ask("render", messages=messages, chat_template=source, time=TIME, **settings)["text"]
    except Refused as error:
        return error


def check(expected, got):
    if isinstance(expected, str):
        assert got == expected
        return
    assert isinstance(got, Refused), f"{expected!r}, but rendered: {got}"
    if type(expected).__name__ == "TemplateError":  # raised by the template: its own message arrives
        assert str(got).endswith(str(expected))


@pytest.mark.parametrize("style", sorted(STYLES))
@pytest.mark.parametrize("chat", sorted(CHATS))
@pytest.mark.parametrize("setting", sorted(SETTINGS))
def test_styles(loaded, monkeypatch, style, chat, setting):
    settings = SETTINGS[setting]
    expected = reference(monkeypatch, STYLES[style], CHATS[chat], **settings)
    check(expected, ours(loaded, STYLES[style], CHATS[chat], **settings))


@pytest.mark.parametrize("style", sorted(STYLES))
def test_most_chats_render(monkeypatch, style):
    """The comparison above is not one of failures with failures."""
    results = [
        reference(monkeypatch, STYLES[style], chat, **settings)
        for chat in CHATS.values()
        for settings in SETTINGS.values()
    ]
    assert sum(isinstance(result, str) for result in results) >= len(results) // 2, style


@pytest.mark.parametrize("style", sorted(STYLES))
def test_ids_have_no_added_tokens(loaded, monkeypatch, style):
    text = reference(monkeypatch, STYLES[style], CHATS["user"], add_generation_prompt=True)
    assert isinstance(text, str)
    ids = loaded.ask("chat", messages=CHATS["user"], chat_template=STYLES[style], time=TIME)["ids"]
    assert ids == loaded.tokenizer.encode(text, add_special_tokens=False).ids
    assert ids.count(loaded.tokenizer.token_to_id("<s>")) == text.count("<s>") <= 1


@pytest.mark.parametrize("style", ["chatml", "gemma", "llama3_tools", "qwen3_thinking", "smollm3", "granite"])
@pytest.mark.parametrize("final", ["The answer", "Spaces  ", " both \n", "with </think> inside"])
def test_continue_final_message(loaded, monkeypatch, style, final):
    chat = [*CHATS["user"], {"role": "assistant", "content": final}]
    expected = reference(monkeypatch, STYLES[style], chat, continue_final_message=True)
    check(expected, ours(loaded, STYLES[style], chat, continue_final_message=True))


EXPRESSIONS = [
    "{{ x | tojson }}",
    "{{ x | tojson(indent=2) }}",
    "{{ x | tojson(indent='\\t', sort_keys=true) }}",
    "{{ x | tojson(separators=(',', ':')) }}",
    "{{ x | tojson(ensure_ascii=true) }}",
    "{{ x }}",
    "{{ x | string }}",
    "{{ x.values() | list }}",
    "{% for k, v in x | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in x %}{{ k }}{% endfor %}{{ x | length }}{{ x.keys() | list }}",
    "{{ x.get('a') }}{{ x.get('zz') }}{{ x.get('zz', 'd') }}",
    "{{ undefined_thing }}{{ undefined_thing is defined }}{{ undefined_thing | length }}",
    "{{ undefined_thing.attribute }}",
    "{{ undefined_thing() }}",
    "{{ x.a.b.c }}",
    "{{ 'a' + 1 }}",
    "{{ none.x }}",
    "{{ 'abc'.split('b') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a\\nb\\r\\nc'.splitlines() }}",
    "{{ 'xxaxx'.strip('x') }}|{{ '\\n a \\n'.strip() }}|{{ 'abc'.rstrip('bc') }}|{{ 'abc'.lstrip('ab') }}",
    "{{ 'abc'.find('c') }} {{ 'abc'.rfind('z') }} {{ 'éabc'.index('b') }} {{ 'banana'.count('an') }}",
    "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'a b c'.rsplit(None, 1) }}",
    "{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'ab'.center(7, '*') }}{{ 'abc'.center(6, '*') }}{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3) }}",
    "{{ 'Abc'.isupper() }}{{ 'ABC'.isupper() }}{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ ''.isspace() }}{{ ' '.isspace() }}",
    "{{ 'Hello World'.swapcase() }}{{ 'hello world'.title() }}{{ 'HELLO'.capitalize() }}{{ 'ab'.join(['1', '2']) }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.txt'.removesuffix('.txt') }}{{ 'abc'.startswith(('x', 'a')) }}",
    "{{ [1, 2, 3].index(2) }}{{ [1, 1].count(1) }}{{ [1, 2] + [3] }}{{ [1, 2, 3][-1] }}{{ [1, 2, 3][1:] }}{{ 'abc'[::-1] }}",
    "{{ 1 is number }}{{ true is number }}{{ 1 is integer }}{{ 1.0 is float }}{{ 'a' is string }}{{ x is mapping }}",
    "{{ x is iterable }}{{ 'a' is iterable }}{{ 'a' is sequence }}{{ x is sequence }}{{ [] is sequence }}{{ none is none }}",
    "{{ true is true }}{{ 1 is true }}{{ false is boolean }}{{ 3 is odd }}{{ 4 is divisibleby(2) }}{{ 'a' is in(['a']) }}",
    "{{ 1 if false }}|{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }}|{{ 1 < 2 < 3 }}|{{ not 1 }}|{{ 1 and 2 }}|{{ 0 or 'x' }}",
    "{{ 1e16 }} {{ 1e-5 }} {{ 123456789.123 }} {{ 1.0 }} {{ 2 ** 10 }} {{ 7 / 7 }} {{ -7 // 2 }} {{ 7.5 % 2 }}",
    "{{ [x, none, true, 'it\\'s', \"q\\\"\"] }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set ns = namespace() %}{% set ns.v = 'q' %}{{ ns.v }}",
    "{% macro m(a, b='d') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m(b=3, a=4) }}",
    "{% call(u) wrap() %}[{{ u }}]{% endcall %}",
    "{% macro wrap() %}<{{ caller('z') }}>{% endmacro %}{% call(u) wrap() %}[{{ u }}]{% endcall %}",
    "{% for i in [1, 2, 3] if i != 2 %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{% endfor %}",
    "{% for i in [] %}{% else %}none{% endfor %}{% with q = 3 %}{{ q }}{% endwith %}{{ q }}",
    "{% raw %}{{ raw }}{% endraw %}{# comment #}{% if true -%}   a   {%- endif %}",
    "  {%- if true %}\n  x\n  {%- endif %}\n\ny\n",
    "\t{% if true %}\n\tx\n\t{% endif %}\n  {# c #}\nz {% if true %} w {% endif %}\n\n",
    "{%+ if true %}a{% endif +%}\nb",
    "{{ dict(a=1, b='x') }}{{ range(3) | list }}{{ range(5, 0, -2) | list }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %j %% %f') }}",
    "{{ raise_exception('stop — ' ~ x.a) }}",
    "{{ x | items | list }}{{ [[1, 2], [3]] | sum(start=[]) }}{{ ['b', 'a'] | sort | first }}{{ [1, 2, 3, 4] | batch(2) | list }}",
    "{{ [{'n': 1}, {'n': 2}] | map(attribute='n') | list }}{{ ['a'] | map('upper') | list }}{{ [1, 0] | select | list }}",
    "{{ [{'n': 1}, {'m': 2}] | rejectattr('n', 'defined') | list }}{{ [3, 1] | max }}{{ 'a b' | wordcount }}{{ 'x' | center(5) }}|",
    "{{ 3.7 | int }}{{ 3.14159 | round(2) }}{{ 2.5 | round }}{{ -3 | abs }}{{ 'x' | e }}{{ '<b>' | escape }}{{ '<b>' | safe }}",
    "{% for a in 'héllo' %}{{ a }}.{% endfor %}{{ 'x\\ty' | tojson }}{{ '\\u00e9' }}{{ 'a' 'b' }}",
    "{{ x['a'] }}{{ x['missing'] }}{{ x.missing is defined }}{{ 'a' in x }}{{ 'zz' not in x }}{{ x == {'a': 1} }}",
    "{{ broken",
    "{% if %}",
    "{% endif %}",
    "{{ 1 | no_such_filter }}",
    "{% unknown_tag %}",
]

VALUES = {
    "b": [1, -2.5, 1e20, 1e16, 0.00001, None, True, False, [], {}],
    "a": "—‹&/<é😀\"\\\n\t\x01\x7f\u2028",
    "n": {"big": 18446744073709551615, "neg": -9007199254740993, "z": 0.1, "q": "it's"},
}


@pytest.mark.parametrize("index", range(len(EXPRESSIONS)))
def test_expressions(loaded, monkeypatch, index):
    settings = {"variables": {"x": VALUES}}
    expected = reference(monkeypatch, EXPRESSIONS[index], CHATS["user"], **settings)
    check(expected, ours(loaded, EXPRESSIONS[index], CHATS["user"], **settings))


def test_content_parts(loaded, monkeypatch):
    """A template that handles lists gets them as they are; for others they are joined."""
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    listed = [{"role": "system", "content": [{"type": "text", "text": "S"}]}, {"role": "user", "content": parts}]
    joined = [{"role": "system", "content": "S"}, {"role": "user", "content": "one two"}]
    for style in sorted(STYLES):
        chat = listed if style in ("gemma3", "glm") else joined
        if style == "gemma3":  # of a system list it reads the first part only, so that is joined
            chat = [joined[0], listed[1]]
        expected = reference(monkeypatch, STYLES[style], chat, add_generation_prompt=True)
        check(expected, ours(loaded, STYLES[style], listed, add_generation_prompt=True))
