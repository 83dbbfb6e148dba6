"""mlxlm chat: the conversation, its cache, and its commands."""

import re

import pytest
from cli_support import encode, rendered

STATS = re.compile(r"prompt: (\d+) new and (\d+) cached tokens, .* generation: (\d+) tokens")


@pytest.fixture
def chat(mlxlm, model):
    def run(*lines, args=()):
        done = mlxlm("chat", "--model", model, "-m", 8, "--stats", *args, stdin="".join(f"{l}\n" for l in lines).encode(),
                     check=0)
        done.stats = [tuple(map(int, numbers)) for numbers in STATS.findall(done.err)]
        return done

    return run


@pytest.fixture
def answer(mlxlm, model):
    """The text that generate gives, without any cache, for a conversation."""

    def run(*messages, args=()):
        ids = ",".join(map(str, encode(rendered(*messages))))
        return mlxlm.json("generate", "--model", model, "--prompt-ids", ids, "-m", 8, *args)["text"]

    return run


def test_turns_equal_generation_without_a_cache(chat, answer):
    first = answer(("user", "One"))
    second = answer(("user", "One"), ("assistant", first), ("user", "Two"))
    third = answer(("user", "One"), ("assistant", first), ("user", "Two"), ("assistant", second), ("user", "Three"))
    assert chat("One", "Two", "Three").out == f"{first}\n{second}\n{third}\n"


def test_sampled_turns_equal_generation_without_a_cache(chat, answer):
    args = ("--temp", 0.9, "--seed", 11)
    first = answer(("user", "One"), args=args)
    second = answer(("user", "One"), ("assistant", first), ("user", "Two"), args=args)
    assert chat("One", "Two", args=args).out == f"{first}\n{second}\n"


def test_only_new_tokens_are_processed(chat, answer):
    stats = chat("One", "Two", "Three").stats
    assert [cached for _, cached, _ in stats][0] == 0
    conversation, reused = [], 0
    for number, (new, cached, _) in enumerate(stats):
        conversation.append(("user", ["One", "Two", "Three"][number]))
        prompt = encode(rendered(*conversation))
        assert new + cached == len(prompt)
        conversation.append(("assistant", answer(*conversation)))
        if number > 0:
            assert cached >= reused  # at least the whole previous prompt
        reused = len(prompt)


def test_system_prompt_survives_a_reset(chat, answer):
    system = ("system", "Be brief.")
    first = answer(system, ("user", "One"))
    for reset in ("/reset", "r"):
        done = chat("One", reset, "One", args=("--system-prompt", "Be brief."))
        assert done.out == f"{first}\n{first}\n"
        assert done.stats[1][:2] == (1, len(encode(rendered(system, ("user", "One")))) - 1)


def test_commands(chat, mlxlm, model):
    done = chat("/help", "h", "/nonsense", "", "q", "never sent")
    assert done.out == ""
    assert done.err.count("/reset (r)") == 2
    assert "unknown command '/nonsense'" in done.err
    for leave in ("/exit", "/quit"):
        assert chat(leave, "never sent").out == ""


def test_a_line_can_continue(chat, answer):
    assert chat("One\\", "Two").out == answer(("user", "One\nTwo")) + "\n"


def test_last_line_without_newline(mlxlm, model, answer):
    done = mlxlm("chat", "--model", model, "-m", 8, stdin=b"One", check=0)
    assert done.out == answer(("user", "One")) + "\n"


def test_a_wrong_message_is_reported_and_the_chat_goes_on(mlxlm, model, answer):
    done = mlxlm("chat", "--model", model, "-m", 8, stdin=b"caf\xe9\nOne\n", check=0)
    assert "not UTF-8" in done.err
    assert done.out == answer(("user", "One")) + "\n"


def test_no_answer_takes_the_message_back(chat, mlxlm, model, answer):
    assert chat("One", "Two", args=("-m", 0)).out == "\n\n"
