"""The package as such: the command, types, conversion, what importing it costs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlxlm
import numpy as np
import pytest
from conftest import BUILD, PACKAGE, TESTS

ENVIRONMENT = os.environ | {"PYTHONPATH": str(PACKAGE)}


def python(*arguments, **kwargs):
    return subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, capture_output=True, text=True, **kwargs)


def test_the_command(tiny_folder):
    done = python("-m", "mlxlm", "generate", "--model", tiny_folder, "--prompt", "abc", "--max-tokens", "3", "--json")
    assert done.returncode == 0 and '"text"' in done.stdout, done.stderr
    assert python("-m", "mlxlm", "no-such-command").returncode == 2


def test_needs_numpy_alone():
    program = (
        "import sys, mlxlm, mlxlm.models.llm, mlxlm.models.cache, mlxlm.interop, mlxlm.processors\n"
        "third = {m.split('.')[0] for m, v in sys.modules.items() if 'site-packages' in (getattr(v, '__file__', '') or '')}\n"
        "print(sorted(third - {'numpy', '_distutils_hack'}))\n"
    )
    done = python("-c", program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_what_a_wheel_holds(tmp_path, tiny_folder):
    """The files that CMake puts into a wheel work away from the build, and need nothing unusual of a system."""
    command = ["cmake", "--install", BUILD, "--component", "python", "--prefix", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert len(files) == 3 and files[1:] == ["mlxlm/bin/mlxlm", "mlxlm/libmlxlm.so.0.1"], files
    shutil.copytree(TESTS.parent / "python" / "mlxlm", tmp_path / "mlxlm", dirs_exist_ok=True)
    program = "import mlxlm, sys; print(mlxlm.generate(*mlxlm.load(sys.argv[1]), [97], max_tokens=2) != '', mlxlm.__file__)"
    done = subprocess.run([sys.executable, "-c", program, tiny_folder], capture_output=True, text=True, cwd="/",
                          env={"PYTHONPATH": str(tmp_path)})
    assert done.stdout.strip() == f"True {tmp_path}/mlxlm/__init__.py", done.stderr
    usual = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for name in files:
        listed = subprocess.run(["readelf", "-d", tmp_path / name], check=True, capture_output=True, text=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", listed))
        assert needed <= usual | {"libmlxlm.so.0.1", "libedit.so.2", "libpthread.so.0", "libdl.so.2"}, f"{name}: {needed}"


@pytest.mark.parametrize("target", ["package", "user"])
def test_types(tmp_path, target):
    """mypy --strict on the package, and on a program that uses it."""
    program = tmp_path / "user.py"
    program.write_text(
        "from mlxlm import batch_generate, generate, load, stream_generate\n"
        "from mlxlm.models.cache import load_prompt_cache, make_prompt_cache\n"
        "from mlxlm.models.llm import MLXLanguageModel\n"
        "from mlxlm.sample_utils import make_logits_processors, make_sampler\n"
        "model, tokenizer = load('folder')\n"
        "model, tokenizer, config = load('folder', return_config=True)\n"
        "ids: list[int] = tokenizer.apply_chat_template([{'role': 'user', 'content': 'x'}], add_generation_prompt=True)\n"
        "text: str = tokenizer.apply_chat_template([], tokenize=False, add_generation_prompt=True)\n"
        "answer: str = generate(model, tokenizer, ids, sampler=make_sampler(0.7), prompt_cache=make_prompt_cache(model))\n"
        "for response in stream_generate(model, tokenizer, text, logits_processors=make_logits_processors({1: 2.0})):\n"
        "    token: int = response.token\n"
        "cache, metadata = load_prompt_cache('file', return_metadata=True)\n"
        "texts: list[str] = batch_generate(model, tokenizer, [ids]).texts\n"
        "answer = MLXLanguageModel('folder').chat([{'role': 'user', 'content': 'x'}]).text\n",
        encoding="utf-8",
    )
    files = [program] if target == "user" else [TESTS.parent / "python" / "mlxlm"]
    command = ["-m", "mypy", "--strict", "--cache-dir", os.devnull, *files]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True,
                          env=os.environ | {"MYPYPATH": str(TESTS.parent / "python")})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (Path(mlxlm.__file__).parent / "py.typed").is_file()


def test_convert(float_folder, tmp_path):
    import mlx_lm

    settings = {"quantize": True, "q_bits": 4, "q_group_size": 32}
    seen = []

    def predicate(path, module):
        seen.append(path)
        assert hasattr(module, "to_quantized")
        return {"bits": 8, "group_size": 64} if "down_proj" in path else "lm_head" not in path

    report = mlxlm.convert(str(float_folder), str(tmp_path / "ours"), quant_predicate=predicate, **settings)
    mlx_lm.convert(str(float_folder), str(tmp_path / "theirs"), quant_predicate=predicate, **settings)
    assert report["shards"] == 1 and any("down_proj" in path for path in seen)
    import mlx.core as mx

    ours, theirs = (mx.load(str(tmp_path / name / "model.safetensors")) for name in ("ours", "theirs"))
    assert set(ours) == set(theirs)
    assert all(np.array_equal(np.array(ours[name]), np.array(theirs[name])) for name in ours)
    with pytest.raises(ValueError, match="exist"):
        mlxlm.convert(str(float_folder), str(tmp_path / "ours"))
    with pytest.raises(NotImplementedError, match="upload"):
        mlxlm.convert(str(float_folder), str(tmp_path / "new"), upload_repo="a/b")

    with pytest.raises(NotImplementedError, match="conversion quantises"):
        mlxlm.convert(str(float_folder), str(tmp_path / "new"), quantize=True,
                      quant_predicate=lambda path, module: module.to_quantized(64, 4))

    def failing(path, module):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        mlxlm.convert(str(float_folder), str(tmp_path / "new"), quantize=True, quant_predicate=failing)
    assert not (tmp_path / "new").exists()


def test_progress_bars(capsys, monkeypatch):
    from mlxlm import _progress

    monkeypatch.setattr(_progress, "INTERVAL", 0)
    with _progress.download_bar(True) as bar:
        assert bar is None, "nobody watches a pipe"
    monkeypatch.setattr(_progress, "somebody_watches", lambda: True)
    with _progress.download_bar(True) as bar:
        bar("downloading", 5_000_000, 10_000_000, 0, 0, 1)
    drawn = capsys.readouterr().err
    assert "downloading" in drawn and "50%" in drawn and "5.0 MB of 10.0 MB" in drawn and drawn.endswith(" \r")
    with _progress.prefill_bar() as bar:
        bar(10, 40)
        bar(40, 40)
    assert "25%  10 tokens of 40 tokens" in capsys.readouterr().err
