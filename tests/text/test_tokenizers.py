"""Encoding, decoding and streaming against the tokenizers package."""

import random

import pytest

from hard_strings import HARD_STRINGS
from probe_client import Refused
from tokenizer_kinds import KINDS


@pytest.fixture(scope="module", params=sorted(KINDS))
def pair(request, tmp_path_factory, probe):
    """The reference tokenizer, and the C++ side with the same file loaded."""
    reference = KINDS[request.param]()
    folder = tmp_path_factory.mktemp(request.param)
    reference.save(str(folder / "tokenizer.json"))
    loaded = probe.ask("load", folder=str(folder))
    assert loaded["vocab_size"] == max(reference.get_vocab(with_added_tokens=True).values()) + 1
    assert loaded["has_thinking"]
    return reference, probe


def streamed(probe, ids, skip=False):
    return probe.ask("stream", ids=ids, skip=skip)["pieces"]


@pytest.mark.parametrize("text", HARD_STRINGS, ids=lambda text: ascii(text)[:24])
def test_text(pair, text):
    reference, probe = pair
    for special in (True, False):
        expected = reference.encode(text, add_special_tokens=special).ids
        assert probe.ask("encode", text=text, special=special)["ids"] == expected
        for skip in (True, False):
            decoded = reference.decode(expected, skip_special_tokens=skip)
            assert probe.ask("decode", ids=expected, skip=skip)["text"] == decoded
            assert "".join(streamed(probe, expected, skip)) == decoded


def has_broken_byte_run(reference, ids):
    """Byte tokens in a row that are not UTF-8: the crate gives up the whole run, a stream only its ill-formed bytes."""
    run = b""
    for token in [*map(reference.id_to_token, ids), None]:
        if token and len(token) == 6 and token.startswith("<0x"):
            run += bytes.fromhex(token[3:5])
            continue
        try:
            run.decode()
        except UnicodeDecodeError:
            return True
        run = b""
    return False


def test_random_ids(pair):
    """Any ids at all: streamed pieces joined are the decoding at once, and mostly that of the crate."""
    reference, probe = pair
    random.seed(5)
    size = reference.get_vocab_size()
    compared = 0
    for _ in range(300):
        ids = [random.randrange(size + 3) for _ in range(random.randrange(1, 12))]
        decoded = probe.ask("decode", ids=ids)["text"]
        assert "".join(streamed(probe, ids)) == decoded
        if not has_broken_byte_run(reference, [id for id in ids if id < size]):
            assert decoded == reference.decode(ids, skip_special_tokens=False), ids
            compared += 1
    assert compared > 50


def test_pieces_are_prompt(pair):
    """Nothing is held back but an unfinished character: each prefix of whole characters is out at once."""
    reference, probe = pair
    ids = reference.encode("plain words 😀 漢字 end", add_special_tokens=False).ids
    pieces = streamed(probe, ids)
    for count in range(1, len(ids) + 1):
        at_once = reference.decode(ids[:count], skip_special_tokens=False)
        assert "".join(pieces[:count]) == at_once.rstrip("\ufffd")


def test_refusals(pair):
    _, probe = pair
    for ids in ([-1], [1, -5]):
        with pytest.raises(Refused, match="non-negative"):
            probe.ask("decode", ids=ids)
