"""A Hub of our own, a cache folder, and the program that downloads from the one into the other."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hub_server import Hub  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MLXLM_BUILD", ROOT / "build"))
PROBE = BUILD / "bin" / "hub_probe"
BINARY = os.environ.get("MLXLM_BIN", str(BUILD / "bin" / "mlxlm"))
REPO = "org/model"
TIMEOUT = 60

# Exit codes of the probe: 10 + ErrorKind.
INVALID, NOT_FOUND, IO, CANCELLED = 10, 11, 12, 14


@dataclass
class Done:
    code: int
    folder: Path
    error: str
    progress: list  # of (stage, done, total, received, files done, files total)


class Machine:
    """One machine with its cache."""

    def __init__(self, hub, folder):
        self.hub, self.home, self.cache = hub, folder, folder / "hub"
        self.repo_folder = self.cache / "models--org--model"
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("HF_", "HUGGING")) and k.lower() not in ("all_proxy", "http_proxy", "https_proxy")}
        self.environment = clean | {"HF_HOME": str(folder), "HF_ENDPOINT": hub.url, "HF_HUB_DOWNLOAD_TIMEOUT": "5",
                                    "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}

    def start(self, *args, **environment):
        assert PROBE.is_file(), f"{PROBE}: build the target hub_probe first, or set MLXLM_BUILD"
        return subprocess.Popen([PROBE, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment | environment)

    def finish(self, process):
        out, err = process.communicate(timeout=TIMEOUT)
        lines = err.splitlines()
        progress = [(w[0], *map(int, w[1:])) for w in map(str.split, lines) if w[0] in ("checking", "downloading")]
        error = "\n".join(line for line in lines if line.startswith("error: ")).removeprefix("error: ")
        return Done(process.returncode, Path(out.strip()), error, progress)

    def download(self, repo=REPO, *args, **environment):
        return self.finish(self.start(repo, *args, **environment))

    def downloads(self, *args, **environment):
        """A download that must succeed: its folder."""
        done = self.download(*args, **environment)
        assert done.code == 0, done.error
        return done.folder

    def fails(self, code, *args, **environment):
        """The message of a download that must fail."""
        done = self.download(*args, **environment)
        assert done.code == code, (done.code, done.error)
        assert done.error
        return done.error

    def python(self, code, **environment):
        """Runs Python with huggingface_hub against the same Hub and cache; what it prints."""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT,
                              env=self.environment | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def blob(self, name, content):
        return self.repo_folder / "blobs" / self.hub.etag(name, content)


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def machine(hub, tmp_path):
    return Machine(hub, tmp_path / "home")


@pytest.fixture(scope="session")
def files():
    """A repository: what a model needs, and what it does not."""
    weights = {f"model-0000{i}-of-00002.safetensors": bytes([i]) * 50_000 + bytes(range(256)) * 9000 for i in (1, 2)}
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    return weights | {
        "config.json": b'{"model_type": "llama"}',
        "generation_config.json": b"{}",
        "tokenizer.json": b'{"version": "1.0"}' + b" " * 5000,
        "tokenizer_config.json": b'{"a": "b"}',
        "chat_template.jinja": b"{{ messages }}",
        "model.safetensors.index.json": index,
        "empty.txt": b"",
        "README.md": b"# A model",
        ".gitattributes": b"*.bin filter=lfs",
        "pytorch_model.bin": b"pickle" * 1000,
        "model.gguf": b"GGUF" * 1000,
        "image.png": b"PNG" * 1000,
    }


@pytest.fixture(scope="session")
def wanted(files):
    return {n: c for n, c in files.items() if n.endswith((".json", ".jinja", ".txt", ".safetensors"))}


def contents(folder):
    """What a snapshot holds: name → bytes."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
