"""Folders made by `mlxlm convert --hf-path` and by the real mlx_lm.convert are the same, file for file."""
import json
import math
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import hf_folders
import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import load, utils
from mlx_lm.convert import convert as reference_convert
from transformers import AutoTokenizer

SMALL_SHARD = 100_000  # bytes
BITS, GROUPS, DTYPES = (2, 3, 4, 5, 6, 8), (32, 64, 128), ("float32", "float16", "bfloat16")
RECIPES = ("mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6")
#: the reference's keyword: our flag
FLAGS = {"quantize": "--quantize", "q_bits": "--q-bits", "q_group_size": "--q-group-size", "dtype": "--dtype",
         "dequantize": "--dequantize", "quant_predicate": "--quant-predicate"}


class SmallGigabytes(int):
    """A number of gigabytes whose conversion to bytes gives SMALL_SHARD."""

    def __lshift__(self, _):
        return SMALL_SHARD


@pytest.fixture
def both(tmp_path, convert_hf, monkeypatch):
    """both(source, keywords of the reference…): the folders that we and the reference make of it."""
    count = 0

    def run(source, small_shards=False, **keywords):
        nonlocal count
        count += 1
        ours, theirs = tmp_path / f"ours{count}", tmp_path / f"theirs{count}"
        with monkeypatch.context() as patch:
            if small_shards:
                make_shards = utils.make_shards
                patch.setattr(utils, "make_shards", lambda weights: make_shards(weights, SmallGigabytes()))
            reference_convert(str(source), str(theirs), **keywords)
        flags = ["--max-shard-size", str(SMALL_SHARD)] if small_shards else []
        for keyword, value in keywords.items():
            flags += [FLAGS[keyword]] if value is True else [FLAGS[keyword], str(value)]
        convert_hf(source, ours, *flags)
        return ours, theirs

    return run


def read_tensors(folder):
    """File → name → (dtype, shape, bytes)."""
    def facts(array):
        words = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[array.dtype.size]
        return str(array.dtype), array.shape, np.array(array.view(words)).tobytes()

    return {file.name: {name: facts(array) for name, array in mx.load(str(file)).items()}
            for file in sorted(folder.glob("*.safetensors"))}


def with_group_sizes(config):
    """A recipe without --q-group-size leaves null in the reference's config, which means 64; we write the number."""
    for section in ("quantization", "quantization_config"):
        for module in config.get(section, {}).values():
            if isinstance(module, dict) and module["group_size"] is None:
                module["group_size"] = 64
    return config


def assert_same(ours, theirs):
    ours_tensors, theirs_tensors = read_tensors(ours), read_tensors(theirs)
    assert list(ours_tensors) == list(theirs_tensors)
    for file, expected in theirs_tensors.items():
        assert sorted(ours_tensors[file]) == sorted(expected), file
        different = [name for name in expected if ours_tensors[file][name] != expected[name]]
        assert different == [], file
    for name in ("README.md", "model.safetensors.index.json", "generation_config.json"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    # As text: the order and form of everything, too.
    expected = json.dumps(with_group_sizes(json.loads((theirs / "config.json").read_text())), indent=4)
    assert (ours / "config.json").read_text() == expected


@pytest.mark.parametrize("model_type", hf_folders.MODEL_TYPES)
@pytest.mark.parametrize("tied", [True, False])
def test_architectures(model_type, tied, tmp_path, both):
    conf = hf_folders.config(model_type, tie_word_embeddings=tied)
    source = hf_folders.make(tmp_path / "source", conf, "bfloat16")
    assert_same(*both(source))
    assert_same(*both(source, quantize=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
def test_quantised_bits(dtype, bits, tmp_path, both):
    source = hf_folders.make(tmp_path / "source", dtype=dtype, hard="huge", seed=bits)
    group = GROUPS[(BITS.index(bits) + DTYPES.index(dtype)) % 3]
    ours, theirs = both(source, quantize=True, q_bits=bits, q_group_size=group)
    assert_same(ours, theirs)
    weights = mx.load(str(ours / "model.safetensors"))
    assert weights["model.layers.0.mlp.up_proj.weight"].shape == (256, 128 * bits // 32)
    assert weights["model.layers.0.mlp.up_proj.scales"].dtype == hf_folders.TYPES[dtype]
    assert_same(*both(theirs, dequantize=True))


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype, to, tmp_path, both):
    source = hf_folders.make(tmp_path / "source", dtype=dtype, shards=2, hard="float16")
    assert_same(*both(source, dtype=to))
    ours, theirs = both(source, dtype=to, quantize=True, q_bits=3)
    assert_same(ours, theirs)
    assert_same(*both(theirs, dtype=dtype))
    assert_same(*both(theirs, dtype=dtype, dequantize=True))


@pytest.mark.parametrize("torch_dtype, expected", [("bfloat16", "bfloat16"), ("float64", "float32"), ("auto", "float32")])
def test_torch_dtype(torch_dtype, expected, tmp_path, both):
    source = hf_folders.make(tmp_path / "source", hf_folders.config(torch_dtype=torch_dtype, dtype="float16"))
    ours, theirs = both(source)
    assert_same(ours, theirs)
    assert mx.load(str(ours / "model.safetensors"))["model.norm.weight"].dtype == hf_folders.TYPES[expected]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(recipe, tmp_path, both):
    # 11 layers: neither the eighths nor the thirds come out even.
    conf = hf_folders.config(num_hidden_layers=11, tie_word_embeddings=False, intermediate_size=128)
    source = hf_folders.make(tmp_path / "source", conf, "float16")
    ours, theirs = both(source, quantize=True, quant_predicate=recipe)
    assert_same(ours, theirs)
    widths = {module["bits"] for module in json.loads((ours / "config.json").read_text())["quantization"].values()
              if isinstance(module, dict)}
    assert widths == {int(recipe[6]), int(recipe[8])}
    if recipe == "mixed_3_4":
        assert_same(*both(source, quantize=True, quant_predicate=recipe, q_group_size=32, q_bits=5))


@pytest.mark.parametrize("keywords", [{}, dict(quantize=True), dict(quantize=True, q_bits=6, q_group_size=32)],
                         ids=["dense", "4-bit", "6-bit"])
def test_shards(keywords, tmp_path, both):
    source = hf_folders.make(tmp_path / "source", hf_folders.config("qwen2", tie_word_embeddings=False), shards=3)
    ours, theirs = both(source, small_shards=True, **keywords)
    assert len(list(ours.glob("model-*-of-*.safetensors"))) > 2
    assert_same(ours, theirs)


def test_widths_that_no_group_divides_stay_dense(tmp_path, both):
    source = hf_folders.make(tmp_path / "source", hf_folders.config(intermediate_size=160))
    ours, theirs = both(source, quantize=True)
    assert_same(ours, theirs)
    assert "model.layers.0.mlp.down_proj.scales" not in mx.load(str(ours / "model.safetensors"))


def test_partly_quantised_folders_get_the_rest(tmp_path, both):
    source = hf_folders.make(tmp_path / "source")
    part = tmp_path / "part"
    reference_convert(str(source), str(part), quantize=True, q_group_size=32,
                      quant_predicate=lambda path, _: "v_proj" not in path and "embed" not in path)
    assert_same(*both(part))
    assert_same(*both(part, quantize=True, q_bits=8, q_group_size=128))


def test_tensors_that_the_model_does_not_use(tmp_path, both):
    frequencies = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": mx.ones(16) for i in range(2)}
    source = hf_folders.make(tmp_path / "source", extra=frequencies | {"lm_head.weight": mx.ones((256, 128))})
    ours, theirs = both(source, quantize=True)
    assert_same(ours, theirs)
    assert not [name for name in mx.load(str(ours / "model.safetensors")) if "inv_freq" in name or "lm_head" in name]


def test_each_runs_what_the_other_made(tmp_path, both, generate):
    source = hf_folders.make(tmp_path / "source", hf_folders.config("qwen3"), "bfloat16")
    ours, theirs = both(source, quantize=True)
    prompt = list(b"The five boxing wizards jump")
    model, tokenizer = load(str(ours))
    other, _ = load(str(theirs))
    assert tokenizer.encode("wizards jump") == list(b"wizards jump")
    logits = [np.array(m(mx.array([prompt])).astype(mx.float32)) for m in (model, other)]
    np.testing.assert_array_equal(*logits)
    first, second = generate(ours), generate(theirs)
    assert first["token_ids"] == second["token_ids"] and len(first["token_ids"]) >= 1


def test_tokenizers_are_the_same(tmp_path, both):
    source = hf_folders.make(tmp_path / "source")
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in both(source))
    text = "naïve 日本語\n\n  x"
    assert ours.encode(text) == theirs.encode(text) == list(text.encode())
    assert ours.get_chat_template() == theirs.get_chat_template() == hf_folders.TEMPLATE


def write_zeros(folder, conf):
    """A float16 model whose weights are a hole in the file: it takes no disk, but reading it takes memory."""
    folder.mkdir()
    header, end = {}, 0
    for name, shape in hf_folders.shapes(conf).items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    (folder / "config.json").write_text(json.dumps(conf))
    hf_folders.write_tokenizer(folder)
    return end


def resident_peak(pid):
    """Bytes; 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@pytest.mark.parametrize("flags", [["-q"], ["--dtype", "bfloat16"], []], ids=["quantise", "cast", "copy"])
def test_memory_stays_below_the_models_size(flags, tmp_path, program):
    conf = hf_folders.config(hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, vocab_size=8192)
    size = write_zeros(tmp_path / "source", conf)
    assert size > 200e6
    command = [program, "convert", "--hf-path", tmp_path / "source", "--mlx-path", tmp_path / "out", "-t", "2", *flags]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:  # rusage would count this process, of which the program is a fork
        peak = max(peak, resident_peak(process.pid))
        time.sleep(0.002)
    shutil.rmtree(tmp_path / "out")
    assert process.returncode == 0
    # The program itself, blocks of rows on two threads, and the largest weight at most: 16 MB.
    assert 1e6 < peak < 64e6


def test_refuses_what_is_broken(tmp_path, convert_hf):
    source = hf_folders.make(tmp_path / "source", shards=2)
    out = tmp_path / "out"
    shard = source / "model-00002-of-00002.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-10])
    assert shard.name in convert_hf.fails(source, out, "-q")
    shard.unlink()
    assert f"{shard.name}: missing" in convert_hf.fails(source, out, "-q")
    shard.write_bytes(data)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"intermediate_size": 128}))
    assert "expected shape [128, 128], got [256, 128]" in convert_hf.fails(source, out)
    (source / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    assert 'quant_method "fp8" is not supported' in convert_hf.fails(source, out)
    (source / "config.json").write_text(json.dumps(config))
    assert "exists already" in convert_hf.fails(source, source)
    convert_hf(source, out, "-q")
    assert "already quantised (4-bit group 64)" in convert_hf.fails(out, tmp_path / "again", "-q", "--q-bits", "8")
