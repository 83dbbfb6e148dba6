"""Converted tokenizers load in transformers and split, encode and decode hard text as the originals do."""
import io
import json

import pytest
import sentencepiece
import tiny_gguf
from gguf import TokenType
from transformers import AutoTokenizer

HARD = ["", " ", "a", "hello world", " leading", "  two  spaces  ", "trailing ", "tab\tand\nnewline\r\n\r\n", "don't WE'LL",
        "1234567 3.14", "naïve café e\u0301", "日本語と中文", "🙂👩‍👩‍👧 \u200b\ufeff", "مرحبا नमस्ते", "\u2581block", "x" * 300, "\x00\x01\x7f",
        "the cat sat on the mat, and the cab", "\u00a0nbsp\u2003em", "if x:\n        return {'a': [1, 2]}"]


@pytest.fixture(scope="module")
def corpus():
    words = "the cat sat on the mat and then that other cab ran away from a small hat".split()
    return [" ".join(words[i % len(words)] for i in range(j, j + 9 + j % 5)) + f" {j}." for j in range(400)]


def train(corpus, prefix):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, model_type="bpe", vocab_size=340, byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, user_defined_symbols=["<|user|>"], pad_id=-1, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentencepiece_tokenizer(sp, prefix):
    def add(writer):
        tokens, scores, types = [], [], []
        for i in range(sp.vocab_size()):
            kind = (TokenType.UNKNOWN if sp.is_unknown(i) else TokenType.CONTROL if sp.is_control(i) else
                    TokenType.BYTE if sp.is_byte(i) else TokenType.USER_DEFINED if sp.id_to_piece(i) == "<|user|>" else TokenType.NORMAL)
            tokens.append(sp.id_to_piece(i))
            scores.append(sp.get_score(i))
            types.append(kind)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        writer.add_bos_token_id(sp.bos_id())
        writer.add_eos_token_id(sp.eos_id())
        writer.add_unk_token_id(sp.unk_id())
        writer.add_add_space_prefix(prefix)
    return add


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece(prefix, corpus, tmp_path, convert, monkeypatch):
    sp = train(corpus, prefix)
    monkeypatch.setattr(tiny_gguf, "VOCAB", sp.vocab_size())
    tiny_gguf.write(tmp_path / "m.gguf", tokenizer=sentencepiece_tokenizer(sp, prefix))
    convert(tmp_path / "m.gguf", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in HARD + corpus[:50]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == sp.encode(text), repr(text)
        assert tokenizer.encode(text) == [sp.bos_id(), *ids]
        assert tokenizer.decode(ids) == sp.decode(ids)
    if not prefix:  # SentencePiece puts no space behind a symbol in the middle; with a prefix, llama.cpp does
        for text in ["<|user|>the cat<|user|> sat", "a<|user|>"]:
            assert tokenizer.encode(text, add_special_tokens=False) == sp.encode(text)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == ("<s>", "</s>", "<unk>")
    assert tokenizer.encode("</s>", add_special_tokens=False) == [sp.eos_id()]


# What each name stands for: the pieces that are tokenised on their own.
PIECES = [
    ("gpt-2", "Hello  world's 123abc!\n\n x", ["Hello", " ", " world", "'s", " 123", "abc", "!", "\n\n", " x"]),
    ("smollm", "in 2024's 12 a1", ["in", " ", "2", "0", "2", "4", "'s", " ", "1", "2", " a", "1"]),
    ("llama-bpe", "Don'T 1234567 a_b!!\n\n  x\n", ["Don", "'T", " ", "123", "456", "7", " a", "_b", "!!\n\n", " ", " x", "\n"]),
    ("qwen2", "I'LL pay 123.45\t\tnow\r\n", ["I", "'LL", " pay", " ", "1", "2", "3", ".", "4", "5", "\t", "\tnow", "\r\n"]),
]


@pytest.mark.parametrize("pre, text, pieces", PIECES, ids=[p[0] for p in PIECES])
def test_byte_level_pieces(pre, text, pieces, tmp_path, convert):
    tiny_gguf.write(tmp_path / "m.gguf", tokenizer=lambda w: tiny_gguf.byte_level_tokenizer(w, pre))
    convert(tmp_path / "m.gguf", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    back = {c: b for b, c in tiny_gguf.byte_chars().items()}
    got = [bytes(back[c] for c in piece).decode() for piece, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    assert got == pieces
    for hard in HARD:
        ids = tokenizer.encode(hard, add_special_tokens=False)
        if pre != "qwen2":  # which normalises to NFC
            assert tokenizer.decode(ids) == hard
    assert tokenizer.encode("x") [0] == (tokenizer.bos_token_id if pre == "llama-bpe" else tokenizer.encode("x", add_special_tokens=False)[0])


def test_merges_added_tokens_and_flags(tmp_path, convert):
    def tokenizer_of(writer):
        tiny_gguf.byte_level_tokenizer(writer, extra=[("<|im_end|>", TokenType.CONTROL)])
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
        writer.add_chat_template([{"name": "default", "template": "{{ messages[0].content }}"}, {"name": "tool_use", "template": "tools"}])

    tiny_gguf.write(tmp_path / "m.gguf", tokenizer=tokenizer_of)
    convert(tmp_path / "m.gguf", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    name = tokenizer.convert_ids_to_tokens
    assert name(tokenizer.encode("ab the")) == ["<s>", "ab", "Ġth", "e", "</s>"]
    assert name(tokenizer.encode("a<think>b</s>", add_special_tokens=False)) == ["a", "<think>", "b", "</s>"]
    ids = tokenizer.encode("a<think>b</s>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a<think>b", "a user-defined token is text, a control token is not"
    assert len(tokenizer) == 256 + 3 + 4, "padding rows of the embedding are no tokens"
    assert tokenizer.get_chat_template(tools=[{}]) == "tools"
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["eos_token_id"] == [tokenizer.convert_tokens_to_ids(t) for t in ("</s>", "<|im_end|>")]


def test_errors_name_the_key(tmp_path, convert):
    def broken(change):
        def add(writer):
            tiny_gguf.byte_level_tokenizer(writer)
            data = writer.kv_data[-1]
            change({key: value for key, value in data.items() if key.startswith("tokenizer.")}, data)
        return add

    def setter(key, value):
        def change(_, data):
            data[f"tokenizer.ggml.{key}"].value = value
        return change

    def duplicate(found, data):
        data["tokenizer.ggml.tokens"].value[5] = data["tokenizer.ggml.tokens"].value[6]

    def delete(key):
        return lambda _, data: data.pop(f"tokenizer.ggml.{key}")

    cases = [
        (setter("model", "bert"), "'tokenizer.ggml.model': 'bert' cannot be converted; supported: gpt2, llama"),
        (setter("pre", "falcon"), "'tokenizer.ggml.pre': 'falcon' cannot be converted; supported: gpt-2, smollm"),
        (setter("merges", ["a b", "a zz"]), "'tokenizer.ggml.merges': 'a zz': expected two tokens"),
        (setter("merges", ["ab"]), "'tokenizer.ggml.merges': 'ab': expected two tokens"),
        (setter("token_type", [1, 2]), "'tokenizer.ggml.token_type': expected 288 types, one for each token, got 2"),
        (setter("token_type", [9] * 288), "token 0: expected 1 to 6, got 9"),
        (setter("eos_token_id", 288), "'tokenizer.ggml.eos_token_id': expected a token of the vocabulary of 288, got 288"),
        (setter("model", "llama"), "'tokenizer.ggml.scores': expected 288 numbers, one for each token, got 0"),
        (duplicate, "tokens 5 and 6 are both"),
        (delete("pre"), "key 'tokenizer.ggml.pre' is missing"),
        (delete("tokens"), "key 'tokenizer.ggml.tokens' is missing"),
    ]
    for change, message in cases:
        tiny_gguf.write(tmp_path / "m.gguf", tokenizer=broken(change))
        assert message in convert.fails(tmp_path / "m.gguf", tmp_path / "out")
