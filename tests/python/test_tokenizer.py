"""TokenizerWrapper beside mlx_lm's, on the same folder."""

import json
import pickle

import mlxlm
import pytest
from mlxlm.tokenizer_utils import TokenizerWrapper

TEXTS = ["Hello, world", " leading", "a — ‹&/ 😀 ñ", "</s><s>x", ""]


@pytest.fixture(scope="module")
def theirs(tiny_folder):
    from mlx_lm.tokenizer_utils import load

    return load(tiny_folder)


def test_encode_and_decode(tokenizer, theirs):
    for text in TEXTS:
        ids = theirs.encode(text)
        assert tokenizer.encode(text) == ids and tokenizer(text)["input_ids"] == ids
        assert tokenizer.decode(ids) == theirs.decode(ids)
        assert tokenizer.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)
    assert tokenizer.decode(97) == "a" and tokenizer.batch_decode([[97], [98]]) == ["a", "b"]
    with pytest.raises(TypeError, match="truncation"):
        tokenizer.encode("a", truncation=True)


def test_attributes(tokenizer, theirs):
    for name in ("bos_token", "eos_token", "bos_token_id", "eos_token_id", "unk_token", "pad_token_id", "vocab_size",
                 "eos_token_ids", "has_chat_template", "has_thinking", "has_tool_calling", "chat_template", "think_start"):
        expected = getattr(theirs, name)
        # Hugging Face's vocab_size leaves added tokens out; len() has them.
        assert getattr(tokenizer, name) == (len(theirs) if name == "vocab_size" else expected), name
    assert len(tokenizer) == len(theirs) and tokenizer.get_vocab() == theirs.get_vocab()
    assert tokenizer.convert_tokens_to_ids(["</s>", "a"]) == theirs.convert_tokens_to_ids(["</s>", "a"])
    assert tokenizer.convert_ids_to_tokens([257, 97]) == theirs.convert_ids_to_tokens([257, 97])
    with pytest.raises(AttributeError, match="no_such_thing"):
        tokenizer.no_such_thing


def test_chat_templates(tokenizer, theirs):
    messages = [{"role": "user", "content": "Hi — there"}, {"role": "assistant", "content": "Yes?"}]
    for settings in ({}, {"add_generation_prompt": True}, {"tokenize": False}, {"continue_final_message": True, "tokenize": False}):
        assert tokenizer.apply_chat_template(messages, **settings) == theirs.apply_chat_template(messages, **settings)
    own = "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ flag }}"
    assert tokenizer.apply_chat_template(messages, chat_template=own, tokenize=False, flag=3) == "[Hi — there][Yes?]3"
    with pytest.raises(TypeError, match="conversation"):
        tokenizer.apply_chat_template([{"role": "user", "content": object()}])
    with pytest.raises(ValueError):
        tokenizer.apply_chat_template(messages, chat_template="{% if %}")


def test_detokenizer(tokenizer):
    ids = tokenizer.encode("a 😀 b")
    detokenizer, pieces = tokenizer.detokenizer, []
    for i in ids:
        detokenizer.add_token(i)
        pieces.append(detokenizer.last_segment)
    detokenizer.finalize()
    assert "".join(pieces) == detokenizer.text == "a 😀 b" and "" in pieces
    assert detokenizer.tokens == ids
    detokenizer.reset()
    assert detokenizer.text == "" and detokenizer.tokens == []


def test_eos(tiny_folder):
    tokenizer = mlxlm.load(tiny_folder)[1]
    assert tokenizer.eos_token_ids == {257}
    tokenizer.add_eos_token("<|turn|>")
    tokenizer.add_eos_token("97")
    assert tokenizer.eos_token_ids == {97, 257, 258}
    for wrong in ("no such", "99999", "-1"):
        with pytest.raises(ValueError):
            tokenizer.add_eos_token(wrong)
    again = pickle.loads(pickle.dumps(tokenizer))
    assert isinstance(again, TokenizerWrapper) and again.eos_token_ids == {97, 257, 258}


def test_tokenizer_config(tiny_folder):
    tokenizer = mlxlm.load(tiny_folder, {"eos_token": "<|turn|>", "chat_template": "T", "trust_remote_code": True})[1]
    assert tokenizer.eos_token_ids == {257, 258} and tokenizer.eos_token == "<|turn|>"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "T"
    with pytest.raises(NotImplementedError, match="return_dict"):
        tokenizer.apply_chat_template([{"role": "user", "content": "x"}], return_dict=True)
    with pytest.raises(NotImplementedError, match="add_bos_token"):
        mlxlm.load(tiny_folder, {"add_bos_token": True})


def test_markers(tiny_folder, tmp_path):
    """Markers of thinking and tool calls, as mlx-lm infers them."""
    import shutil

    from mlx_lm.tokenizer_utils import load as load_theirs
    from mlxlm.tokenizer_utils import load

    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for i, token in enumerate(("<think>", "</think>")):
        content["added_tokens"].append(content["added_tokens"][0] | {"id": 259 + i, "content": token})
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["chat_template"] = "<tool_call> {{ tool_call.name }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    ours, theirs = load(folder), load_theirs(folder)
    for name in ("has_thinking", "think_start", "think_end", "think_start_id", "think_end_tokens", "has_tool_calling",
                 "tool_call_start", "tool_call_end"):
        assert getattr(ours, name) == getattr(theirs, name), name
