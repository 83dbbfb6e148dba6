"""Prompt caches: turns, copies, pickles, files, layers made by hand."""

import copy
import pickle
import subprocess
import sys

import mlxlm
import numpy as np
import pytest
from conftest import PACKAGE
from mlxlm.generate import stream_generate
from mlxlm.models.cache import (
    KVCache,
    PromptCache,
    QuantizedKVCache,
    RotatingKVCache,
    can_trim_prompt_cache,
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
    trim_prompt_cache,
)


def turn(model, tokenizer, prompt, cache, max_tokens=6, **kwargs):
    return [r.token for r in stream_generate(model, tokenizer, prompt, max_tokens=max_tokens, prompt_cache=cache, **kwargs)]


def filled(model, tokenizer, **options):
    cache = make_prompt_cache(model, **options)
    turn(model, tokenizer, "The first turn", cache)
    return cache


@pytest.mark.parametrize(
    "options",
    [{}, {"max_kv_size": 16}, {"kv_bits": 8, "kv_group_size": 32}, {"max_kv_size": 16, "kv_bits": 4, "kv_group_size": 32}],
    ids=["plain", "window", "codes", "window of codes"],
)
def test_copies_pickles_and_files_go_on_alike(model, tokenizer, tmp_path, options):
    cache = filled(model, tokenizer, **options)
    save_prompt_cache(tmp_path / "cache.safetensors", cache, {"turn": "1"})
    loaded, metadata = load_prompt_cache(tmp_path / "cache.safetensors", return_metadata=True, model=model)
    assert metadata == {"turn": "1"}
    others = [copy.deepcopy(cache), copy.copy(cache), pickle.loads(pickle.dumps(cache)), loaded]
    for other in others:
        assert other.bind(model) is not None and other.tokens == cache.tokens and other.size == cache.size == 20
    expected = turn(model, tokenizer, " and the second", cache)
    for other in others:
        assert other.size == 20, "copies are apart"
        assert turn(model, tokenizer, " and the second", other) == expected


def test_layers(model, tokenizer):
    cache = filled(model, tokenizer)
    assert isinstance(cache, PromptCache) and len(cache) == len(model.layers) == len(list(cache)) == 2
    assert all(type(layer) is KVCache and layer.offset == 20 and not layer.empty() for layer in cache)
    assert cache[0].nbytes > 0 and cache.nbytes >= sum(layer.nbytes for layer in cache)
    assert cache[-1].size() == 20 and len(cache[:1]) == 1
    window = filled(model, tokenizer, max_kv_size=16)
    assert type(window[0]) is RotatingKVCache and (window[0].max_size, window[0].keep) == (16, 4)
    codes = filled(model, tokenizer, kv_bits=8, kv_group_size=32)
    assert type(codes[0]) is QuantizedKVCache and (codes[0].bits, codes[0].group_size) == (8, 32)
    for thing in (cache, cache[0], window, codes):
        assert "20 tokens" in repr(thing)


def test_trim(model, tokenizer):
    cache = filled(model, tokenizer)
    tokens = list(cache.tokens)
    assert can_trim_prompt_cache(cache) and trim_prompt_cache(cache, 3) == 3 and cache.tokens == tokens[:-3]
    assert trim_prompt_cache(cache, 100) == 17 and cache.size == 0
    with pytest.raises(NotImplementedError, match="trim_prompt_cache"):
        cache[0].trim(1)


def test_trimmed_goes_on_as_if_it_had_never_been_longer(model, tokenizer):
    cache = make_prompt_cache(model)
    first = turn(model, tokenizer, "Turn", cache)
    trim_prompt_cache(cache, len(first))
    assert turn(model, tokenizer, " more", cache) == turn(model, tokenizer, "Turn more", make_prompt_cache(model))


def test_lists_of_layers(model, tokenizer):
    expected = turn(model, tokenizer, "abc", make_prompt_cache(model))
    by_hand = [KVCache() for _ in model.layers]
    assert turn(model, tokenizer, "abc", by_hand) == expected and by_hand[0].offset == 9
    with_draft = make_prompt_cache(model) + make_prompt_cache(model)
    assert turn(model, tokenizer, "abc", with_draft, draft_model=model) == expected and with_draft[0].offset == 9
    window = [RotatingKVCache(max_size=16, keep=4) for _ in model.layers]
    whole = make_prompt_cache(model, max_kv_size=16)
    assert turn(model, tokenizer, "abcdefgh" * 4, window) == turn(model, tokenizer, "abcdefgh" * 4, whole)
    mixed = [make_prompt_cache(model)[0], make_prompt_cache(model)[1]]
    with pytest.raises(ValueError, match="different caches"):
        turn(model, tokenizer, "abc", mixed)
    with pytest.raises(ValueError, match="layers"):
        turn(model, tokenizer, "abc", [KVCache()])


def test_options_reach_an_empty_cache(model, tokenizer):
    direct = [r.token for r in stream_generate(model, tokenizer, "abcdef" * 5, max_tokens=6, kv_bits=4, kv_group_size=32,
                                               quantized_kv_start=0)]
    cache = make_prompt_cache(model)
    got = turn(model, tokenizer, "abcdef" * 5, cache, kv_bits=4, kv_group_size=32, quantized_kv_start=0)
    assert got == direct and type(cache[0]) is QuantizedKVCache
    with pytest.raises(ValueError, match="prompt_cache"):
        turn(model, tokenizer, "abc", filled(model, tokenizer), kv_bits=8, kv_group_size=32)


def test_one_generation_at_a_time(model, tokenizer):
    cache = make_prompt_cache(model)
    stream = stream_generate(model, tokenizer, "abc", prompt_cache=cache)
    next(stream)
    for use in (
        lambda: stream_generate(model, tokenizer, "abc", prompt_cache=cache),
        lambda: copy.deepcopy(cache),
        lambda: trim_prompt_cache(cache, 1),
        lambda: model([1], cache=cache),
    ):
        with pytest.raises(ValueError, match="using|use"):
            use()
    stream.close()
    assert len(turn(model, tokenizer, "abc", cache)) == 6


def test_other_models_and_files(model, tokenizer, float_folder, tmp_path):
    other, other_tokenizer = mlxlm.load(float_folder)
    with pytest.raises(ValueError, match="another model"):
        turn(other, other_tokenizer, "abc", make_prompt_cache(model))
    pickled = pickle.loads(pickle.dumps(filled(model, tokenizer)))
    assert "no model yet" in repr(pickled) and len(pickled) == 2
    with pytest.raises(ValueError):
        turn(other, other_tokenizer, "abc", pickled)
    assert len(turn(model, tokenizer, "abc", pickled)) == 6
    with pytest.raises(FileNotFoundError):
        load_prompt_cache(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"no cache")
    with pytest.raises(ValueError, match="bad.safetensors"):
        load_prompt_cache(tmp_path / "bad.safetensors", model=model)


def test_a_pickle_in_another_process(model, tokenizer, tmp_path, tiny_folder):
    cache = filled(model, tokenizer)
    (tmp_path / "cache.pickle").write_bytes(pickle.dumps(cache))
    (tmp_path / "model.pickle").write_bytes(pickle.dumps((model, tokenizer)))
    program = (
        "import pickle, sys, mlxlm\n"
        "cache = pickle.load(open(sys.argv[1], 'rb'))\n"
        "model, tokenizer = pickle.load(open(sys.argv[2], 'rb'))\n"
        "print([r.token for r in mlxlm.stream_generate(model, tokenizer, ' more', 6, prompt_cache=cache)])\n"
    )
    command = [sys.executable, "-c", program, tmp_path / "cache.pickle", tmp_path / "model.pickle"]
    output = subprocess.run(command, env={"PYTHONPATH": str(PACKAGE)}, check=True, capture_output=True, text=True).stdout
    assert output.strip() == str(turn(model, tokenizer, " more", cache))


def test_mlx_lm_reads_our_files(model, tokenizer, float_folder, tmp_path):
    import mlx.core as mx
    from mlx_lm.models.cache import load_prompt_cache as load_theirs

    exact, exact_tokenizer = mlxlm.load(float_folder, precision="exact")
    cache = make_prompt_cache(exact)
    turn(exact, exact_tokenizer, "The first turn", cache)
    save_prompt_cache(tmp_path / "cache.safetensors", cache)
    theirs = load_theirs(str(tmp_path / "cache.safetensors"))
    assert theirs[0].offset == cache[0].offset and theirs[0].keys.dtype == mx.float32
    assert np.isfinite(np.array(theirs[0].keys)).all()
