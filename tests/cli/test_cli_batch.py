"""mlxlm batch: many requests from a file, in any order inside and in the order of the input outside."""

import json
import os
import signal
import subprocess
import time

import pytest
from cli_support import encode, rendered

GENERATE = {"temp": "--temp", "temperature": "--temp", "top_p": "--top-p", "top_k": "--top-k", "seed": "--seed",
            "max_tokens": "-m", "system_prompt": "--system-prompt", "prefill_response": "--prefill-response",
            "prompt": "--prompt", "repetition_penalty": "--repetition-penalty", "min_p": "--min-p",
            "top_logprobs": "--top-logprobs", "min_tokens": "--min-tokens", "max_kv_size": "--max-kv-size"}
SAME = ["text", "prompt_token_ids", "token_ids", "logprobs", "top_logprobs", "finish_reason", "prompt_tokens",
        "generation_tokens", "seed"]
REQUESTS = [
    {"id": "first", "prompt": "One", "max_tokens": 40},
    {"prompt": "Two", "temp": 0.9, "seed": 3, "max_tokens": 6},
    {"id": 7, "prompt": "Three", "temperature": 1, "top_p": 0.8, "top_k": 20, "seed": 4, "max_tokens": 17},
    {"prompt": "Four", "system_prompt": "Be brief.", "repetition_penalty": 1.3, "max_tokens": 0},
    {"prompt": "Five " * 30, "max_tokens": 9, "top_logprobs": 2, "seed": 1},
    {"prompt": "Six", "prefill_response": "Well", "min_p": 0.1, "temp": 2, "seed": 9, "max_tokens": 12},
    {"prompt": "Seven", "max_kv_size": 16, "min_tokens": 3, "seed": None, "max_tokens": 30},
]


class Batch:
    def __init__(self, mlxlm, model, folder):
        self.mlxlm, self.model = mlxlm, model
        self.input, self.output = folder / "requests.jsonl", folder / "answers.jsonl"

    def write(self, *requests):
        lines = [r if isinstance(r, str) else json.dumps(r) for r in requests]
        self.input.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def arguments(self, *args, output=True):
        files = ["--input", self.input] + (["--output", self.output] if output else [])
        return ["batch", "--model", self.model, *files, *args]

    def __call__(self, *requests, args=(), check=0):
        if requests:
            self.write(*requests)
        self.output.unlink(missing_ok=True)
        self.done = self.mlxlm(*self.arguments(*args), check=check)
        return self.answers()

    def answers(self):
        text = self.output.read_text(encoding="utf-8")
        assert text == "" or text.endswith("\n")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def batch(mlxlm, model, tmp_path):
    return Batch(mlxlm, model, tmp_path)


def alone(mlxlm, model, request):
    options = [part for key, value in request.items() if key in GENERATE and value is not None
               for part in (GENERATE[key], value)]
    return mlxlm.json("generate", "--model", model, *options)


def same(answer, expected, keys=SAME):
    assert {key: answer[key] for key in keys} == {key: expected[key] for key in keys}


def test_every_request_as_if_alone(batch, mlxlm, model):
    answers = batch(*REQUESTS)
    assert [(a["id"], a["index"]) for a in answers] == [("first", 0), (None, 1), (7, 2), (None, 3), (None, 4), (None, 5),
                                                        (None, 6)]
    for request, answer in zip(REQUESTS, answers):
        expected = alone(mlxlm, model, request)
        assert list(answer) == ["id", "index", *expected]
        same(answer, expected, SAME if request.get("seed") else SAME[:-1])
    report = batch.done.err.splitlines()
    assert report[0] == "Answers: 7, of them 0 errors" and [line.split(":")[0] for line in report[1:]] == [
        "Prompt", "Generation", "Peak memory"]


@pytest.mark.parametrize("args", [("--batch-size", 1), ("-b", 2, "-t", 1), ("--prefill-step-size", 5),
                                  ("--kv-bytes", "64KiB"), ("--prompt-lookup",)])
def test_how_it_is_run_changes_nothing(batch, args):
    base = batch(*REQUESTS[:6])
    for answer, expected in zip(batch(args=args), base):
        same(answer, expected, SAME[:-1])


def test_messages_and_ids(batch):
    turns = [("user", "One"), ("assistant", "1"), ("user", "Two")]
    messages = [{"role": role, "content": content} for role, content in turns]
    system = {"role": "system", "content": "Mine."}
    answers = batch({"messages": messages}, {"messages": messages, "system_prompt": "Be brief."},
                    {"messages": [system, *messages]}, {"prompt_ids": [65, 66]},
                    {"prompt": "a\\n✓", "ignore_chat_template": True, "chat_template_config": None},
                    args=("-m", 1, "--system-prompt", "From the command line."), check=1)
    texts = [rendered(("system", "From the command line."), *turns), rendered(("system", "Be brief."), *turns),
             rendered(("system", "Mine."), *turns), "AB"]
    assert [a["prompt_token_ids"] for a in answers[:4]] == [encode(text) for text in texts]
    assert "ignore_chat_template" in answers[4]["error"]  # with the command line's system prompt


def test_options_are_defaults_of_the_lines(batch, mlxlm, model):
    answers = batch({"prompt": "One"}, {"prompt": "One", "max_tokens": 2, "seed": 6}, args=("-m", 5, "--temp", 1, "--seed", 5))
    base = ("generate", "--model", model, "--prompt", "One", "--temp", 1)
    assert answers[0]["token_ids"] == mlxlm.json(*base, "--seed", 5, "-m", 5)["token_ids"]
    assert answers[1]["token_ids"] == mlxlm.json(*base, "--seed", 6, "-m", 2)["token_ids"]


@pytest.mark.parametrize("line, field, message", [
    ("{", None, "not JSON"),
    ("[1]", None, "expected a JSON object, got [1]"),
    ('{"id": 1}', "prompt", "expected one of prompt, messages and prompt_ids"),
    ('{"prompt": "a", "prompt_ids": [1]}', "prompt_ids", "give one of them"),
    ('{"prompt": 5}', "prompt", "prompt: expected a text, got 5"),
    ('{"prompt": "", "ignore_chat_template": true}', "prompt", "got an empty prompt"),
    ('{"messages": []}', "messages", "messages: expected a list of messages"),
    ('{"messages": [{"content": "x"}]}', "messages", "expected objects with a role"),
    ('{"messages": [{"role": "user", "content": "x"}], "ignore_chat_template": true}', "messages", "chat template"),
    ('{"prompt_ids": [1, -1]}', "prompt_ids", "prompt_ids: expected token ids of at least 0, got -1"),
    ('{"prompt_ids": []}', None, "no tokens"),
    ('{"prompt_ids": [5000]}', "prompt", "5000"),
    ('{"prompt": "a", "temprature": 1}', "temprature", 'unknown key "temprature"; did you mean "temperature"?'),
    ('{"prompt": "a", "model": "x"}', "model", 'unknown key "model"'),
    ('{"prompt": "a", "temp": 1, "temperature": 2}', "temperature", "given twice"),
    ('{"prompt": "a", "temp": "1"}', "temp", 'temp: expected a number of at least 0, got "1"'),
    ('{"prompt": "a", "top_p": 1.5}', "top_p", "top_p: expected a number from 0 to 1, got 1.5"),
    ('{"prompt": "a", "max_tokens": 1.5}', "max_tokens", "max_tokens: expected a whole number of at least -1, got 1.5"),
    ('{"prompt": "a", "max_tokens": 99999999999}', "max_tokens", "expected a whole number"),
    ('{"prompt": "a", "max_tokens": true}', "max_tokens", "expected a whole number of at least -1, got true"),
    ('{"prompt": "a", "seed": -1}', "seed", "seed: expected a whole number from 0 to 2^64 - 1, got -1"),
    ('{"prompt": "a", "stop": [1]}', "stop", "stop: expected a list of texts, got 1"),
    ('{"prompt": "a", "json_object": 1}', "json_object", "expected true or false"),
    ('{"prompt": "a", "json_object": true, "choice": ["a"]}', None, "json_object and choice: an answer has one form"),
    ('{"prompt": "a", "logit_bias": {"5": null}}', "logit_bias", "expected a finite number for token 5, got null"),
    ('{"prompt": "a", "logit_bias": {"5": true}}', "logit_bias", "expected a finite number for token 5, got true"),
    ('{"prompt": "a", "logit_bias": {"5": "1"}}', "logit_bias", 'expected a finite number for token 5, got "1"'),
    ('{"prompt": "a", "logit_bias": {"5": 1e999}}', "logit_bias", "expected a finite number for token 5"),
    ('{"prompt": "a", "logit_bias": {"5": -1e39}}', "logit_bias", "expected a finite number for token 5"),
    ('{"prompt": "a", "logit_bias": {"5": NaN}}', "logit_bias", "expected a finite number for token 5"),
    ('{"prompt": "a", "logit_bias": {"x": 1}}', "logit_bias", 'expected token ids as keys, got "x"'),
    ('{"prompt": "a", "logit_bias": {"1.5": 1}}', "logit_bias", 'expected token ids as keys, got "1.5"'),
    ('{"prompt": "a", "logit_bias": {"": 1}}', "logit_bias", 'expected token ids as keys, got ""'),
    ('{"prompt": "a", "logit_bias": {" 5": 1}}', "logit_bias", "expected token ids as keys"),
    ('{"prompt": "a", "logit_bias": {"-1": 1}}', "logit_bias", "expected token ids as keys"),
    ('{"prompt": "a", "logit_bias": {"99999999999": 1}}', "logit_bias", "expected token ids as keys"),
    ('{"prompt": "a", "logit_bias": {"5": 1, "05": 2}}', "logit_bias", "logit_bias[5]"),
    ('{"prompt": "a", "logit_bias": {"259": 1}}', "logit_bias", "259"),
    ('{"prompt": "a", "logit_bias": [[5, 1]]}', "logit_bias", "expected an object of token ids and numbers"),
    ('{"prompt": "a", "extra_eos_token": ["no such"]}', "extra_eos_token", "no such"),
    ('{"prompt": "a", "top_k": 5000, "temp": 1}', "top_k", "top_k"),
    ('{"prompt": "a", "kv_group_size": 32}', None, "kv_group_size needs kv_bits"),
    ('{"prompt": "a", "id": {}}', "id", "id: expected a text or a whole number"),
])
def test_a_wrong_line_fails_alone(batch, line, field, message):
    good = {"prompt": "One", "max_tokens": 2}
    first, wrong, last = batch(good, "", line, good, args=("--verbose", "false"), check=1)
    assert list(wrong) == ["id", "index", "error", "line", "field"]
    assert (wrong["index"], wrong["line"], wrong["field"]) == (1, 3, field)
    assert wrong["error"].startswith("line 3: ") and message in wrong["error"]
    assert first["token_ids"] == last["token_ids"] and len(first["token_ids"]) == 2
    assert batch.done.err.startswith("mlxlm: error: 1 of the requests failed") and batch.done.err.count("\n") == 1


def test_big_seeds(batch, mlxlm, model):
    seed = 2**64 - 1
    answer, = batch({"prompt": "One", "temp": 1, "seed": seed, "max_tokens": 4})
    assert answer["seed"] == seed
    assert answer["token_ids"] == alone(mlxlm, model, {"prompt": "One", "temp": 1, "seed": seed, "max_tokens": 4})["token_ids"]


def test_standard_input_and_output(batch, mlxlm, model):
    lines = "".join(json.dumps(r) + "\n" for r in REQUESTS[:3]).rstrip("\n")  # the last line without its newline
    done = mlxlm("batch", "--model", model, "--input", "-", "--verbose", "false", stdin=lines.encode(), check=0)
    assert done.err == ""
    for answer, expected in zip(map(json.loads, done.out.splitlines()), batch(*REQUESTS[:3]), strict=True):
        same(answer, expected, SAME[:-1])


def test_requests_are_answered_as_they_come(mlxlm, model):
    process = subprocess.Popen([mlxlm.path, "batch", "--model", str(model), "--input", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for i in range(3):
        process.stdin.write(b'{"prompt": "One", "max_tokens": 2}\n{"prompt"')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["index"] == 2 * i
        process.stdin.write(b': "Two", "max_tokens": 1}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["index"] == 2 * i + 1
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"") and err.startswith(b"Answers: 6")


def test_nothing_to_do(batch):
    batch.write()
    assert batch() == []
    batch.write("", "  ")
    assert batch() == []


def test_resume(batch):
    whole = batch(*REQUESTS)
    text = batch.output.read_bytes()
    lines = text.splitlines(keepends=True)
    for kept in (b"", lines[0], lines[0] + lines[1] + lines[2][:30], text[:-1], text):
        batch.output.write_bytes(kept)
        done = batch.mlxlm(*batch.arguments("--resume"), check=0)
        assert batch.output.read_bytes().startswith(kept[:kept.rfind(b"\n") + 1])
        answers = batch.answers()
        for answer, expected in zip(answers, whole, strict=True):
            same(answer, expected, SAME[:-1])
        assert done.err.startswith("Answers: 7, of them 0 errors")
    # Without --resume nothing is overwritten.
    assert "--resume" in batch.mlxlm.fails(1, *batch.arguments())
    assert batch.output.read_bytes() == text


def test_resume_after_errors_and_new_lines(batch):
    batch({"prompt": "One", "max_tokens": 1}, "{", check=1)
    before = batch.output.read_bytes()
    batch.write({"prompt": "One", "max_tokens": 1}, "{", {"id": "new", "prompt": "Two", "max_tokens": 1})
    batch.mlxlm(*batch.arguments("--resume"), check=0)
    assert batch.output.read_bytes().startswith(before)
    assert batch.answers()[2]["id"] == "new"


def test_resume_of_another_output(batch):
    batch({"id": "a", "prompt": "One", "max_tokens": 1})
    before = batch.output.read_bytes()
    batch.write({"id": "b", "prompt": "One", "max_tokens": 1})
    assert 'line 1: expected the answer with index 0 and id "b"' in batch.mlxlm.fails(1, *batch.arguments("--resume"))
    batch.write()
    assert "more answers than requests" in batch.mlxlm.fails(1, *batch.arguments("--resume"))
    batch.write({"id": "a", "prompt": "One"})
    batch.output.write_text("not an answer\n")
    assert "line 1" in batch.mlxlm.fails(1, *batch.arguments("--resume"))
    assert batch.output.read_text() == "not an answer\n" and before
    assert "--resume needs --output" in batch.mlxlm.fails(2, *batch.arguments("--resume", output=False))


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_and_resumed(mlxlm, endless_model, tmp_path, stop):
    batch = Batch(mlxlm, endless_model, tmp_path)
    requests = [{"id": i, "prompt": f"Prompt {i}", "temp": 1, "seed": i, "max_tokens": 3} for i in range(6)]
    requests[3]["max_tokens"] = 2500
    batch.write(*requests)
    args = [str(a) for a in batch.arguments("--batch-size", 2)]
    process = subprocess.Popen([mlxlm.path, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not batch.output.exists() or batch.output.read_bytes().count(b"\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(stop)
    _, err = process.communicate(timeout=60)
    text = batch.output.read_bytes()
    assert text.count(b"\n") == 3  # the fourth is long
    if stop == signal.SIGINT:
        assert process.returncode == 130 and text.endswith(b"\n")
        assert err.decode() == "mlxlm: stopped by Ctrl-C: 3 answers are written; --resume goes on behind them\n"
    mlxlm(*batch.arguments("--resume"), check=0)
    answers = batch.answers()
    assert batch.output.read_bytes().startswith(text) and len(answers) == 6
    assert answers[3]["token_ids"] == alone(mlxlm, endless_model, requests[3])["token_ids"]


def test_wrong_files(batch, tmp_path):
    assert "requests.jsonl" in batch.mlxlm.fails(1, *batch.arguments())
    assert not batch.output.exists()
    batch.write()
    assert str(tmp_path / "no" / "folder") in batch.mlxlm.fails(
        1, "batch", "--model", batch.model, "--input", batch.input, "--output", tmp_path / "no" / "folder")
    assert "folder" in batch.mlxlm.fails(1, "batch", "--model", batch.model, "--input", tmp_path)
    assert "--kv-bytes: expected bytes, or a size like 2GB" in batch.mlxlm.fails(2, *batch.arguments("--kv-bytes", "2 GB"))


def test_a_request_that_never_fits_fails_alone(batch):
    good = {"prompt": "One", "max_tokens": 2}
    first, wrong, last = batch(good, {"prompt": "word " * 300, "max_tokens": 1000}, good, args=("--kv-bytes", "64KiB"), check=1)
    assert "keys and values" in wrong["error"] and "budget" in wrong["error"]
    assert first["token_ids"] == last["token_ids"]
