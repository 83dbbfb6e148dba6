"""One cache, two programs: what we write Python's huggingface_hub reads, and the other way round. And damaged caches."""

import ast
import fcntl
import importlib.util
import json
import shutil
import time
from pathlib import Path

import pytest

from conftest import IO, NOT_FOUND, REPO, contents


def mlx_lm_patterns():
    """What mlx-lm downloads; read from its source, as importing it takes seconds."""
    source = Path(importlib.util.find_spec("mlx_lm").submodule_search_locations[0]) / "utils.py"
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DEFAULT_ALLOW_PATTERNS":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{source}: no DEFAULT_ALLOW_PATTERNS")


DOWNLOAD = f"""
from huggingface_hub import snapshot_download
print(snapshot_download({REPO!r}, allow_patterns={mlx_lm_patterns()!r}, local_files_only=%s))
"""


def asked(hub):
    """The paths of all requests about repositories; huggingface_hub has other errands too."""
    return [r.path for r in hub.requests if not r.path.startswith("/api/") or r.path.startswith("/api/models/")]


def tree_of(folder):
    """Every entry of a cache with what it is: a link's target or a file's content. Without what is each program's own."""
    own = (".verified", ".locks", "CACHEDIR.TAG")
    entries = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or any(part in own for part in path.relative_to(folder).parts):
            continue
        entries[name] = path.readlink().as_posix() if path.is_symlink() else path.read_bytes()
    return entries


def test_python_reads_what_we_wrote(hub, machine, files):
    hub.add(REPO, files)
    folder = machine.downloads()
    hub.requests.clear()
    assert machine.python(DOWNLOAD % True) == str(folder)
    assert machine.python(DOWNLOAD % True, HF_HUB_OFFLINE="1") == str(folder)
    assert asked(hub) == []
    # Online it asks for the commit, and finds every file, and the list of them, in place.
    assert machine.python(DOWNLOAD % False) == str(folder)
    assert asked(hub) == [f"/api/models/{REPO}/revision/main"]
    scan = "from huggingface_hub import scan_cache_dir as s\ni = s()\nprint(i.warnings, [r.repo_id for r in i.repos])"
    assert machine.python(scan) == f"[] ['{REPO}']"


def test_we_read_what_python_wrote(hub, machine, files, wanted):
    hub.add(REPO, files)
    folder = machine.python(DOWNLOAD % False)
    hub.requests.clear()
    done = machine.download()
    assert (str(done.folder), done.code) == (folder, 0)
    assert asked(hub) == [f"/api/models/{REPO}/revision/main"]
    # The large files were never checked here: they are read, once.
    assert [p[0] for p in done.progress] and {p[0] for p in done.progress} == {"checking"}
    large = sum(len(c) for c in wanted.values() if len(c) > 1 << 20)
    assert done.progress[-1][1:3] == (large, large)
    done = machine.download(HF_HUB_OFFLINE="1")
    assert (str(done.folder), done.progress) == (folder, [])
    assert contents(done.folder) == wanted


def test_both_write_the_same(hub, machine, files):
    hub.add(REPO, files)
    machine.downloads()
    ours = tree_of(machine.cache)
    shutil.rmtree(machine.cache)
    machine.python(DOWNLOAD % False)
    theirs = tree_of(machine.cache)
    listing, = (name for name in ours if "/trees/" in name)
    assert json.loads(ours.pop(listing)) == json.loads(theirs.pop(listing))
    assert ours == theirs


def test_python_completes_what_we_left_and_we_what_python_left(hub, machine, files, wanted):
    commit = hub.add(REPO, files)
    folder = machine.repo_folder / "snapshots" / commit
    machine.downloads()
    (folder / "config.json").unlink()
    machine.python(DOWNLOAD % False)
    assert contents(folder) == wanted
    (folder / "tokenizer.json").unlink()
    machine.blob("tokenizer.json", files["tokenizer.json"]).unlink()
    assert contents(machine.downloads()) == wanted


def test_a_cache_of_an_older_huggingface_hub(hub, machine, files, wanted):
    """Without the list of files."""
    hub.add(REPO, files)
    folder = machine.downloads()
    shutil.rmtree(machine.repo_folder / "trees")
    assert machine.downloads(HF_HUB_OFFLINE="1") == folder
    machine.blob("config.json", files["config.json"]).write_bytes(b"?" * len(files["config.json"]))
    assert "'config.json'" in machine.fails(NOT_FOUND, HF_HUB_OFFLINE="1")
    (folder / "config.json").unlink()
    assert "'config.json'" in machine.fails(NOT_FOUND, HF_HUB_OFFLINE="1")
    assert contents(machine.downloads()) == wanted
    shutil.rmtree(machine.repo_folder / "trees")
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "'model-00002-of-00002.safetensors'" in machine.fails(NOT_FOUND, HF_HUB_OFFLINE="1")


def test_the_lock_of_huggingface_hub_is_kept(hub, machine, files, wanted):
    hub.add(REPO, files)
    locks = machine.cache / ".locks" / "models--org--model"
    locks.mkdir(parents=True)
    etag = hub.etag("config.json", files["config.json"])
    with open(locks / f"{etag}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = machine.start(REPO)
        time.sleep(1.5)
        assert process.poll() is None
        assert hub.contents("config.json") == [r for r in hub.contents("config.json") if "generation" in r.path
                                               or "tokenizer" in r.path]
    done = machine.finish(process)
    assert contents(done.folder) == wanted


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "emptied": lambda path: path.write_bytes(b""),
    "changed": flip,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_blobs_are_fetched_again(hub, machine, files, wanted, name, damage):
    hub.add(REPO, files)
    folder = machine.downloads()
    DAMAGES[damage](machine.blob(name, files[name]))
    message = machine.fails(NOT_FOUND, HF_HUB_OFFLINE="1")
    assert f"'{name}'" in message and "missing or damaged" in message and str(machine.cache) in message
    hub.requests.clear()
    assert machine.downloads() == folder
    assert contents(folder) == wanted
    assert [r.path.rsplit("/", 1)[1] for r in hub.contents() if "/resolve/" in r.path] == [name]


def test_damage_in_a_commit_asked_for_by_name(hub, machine, files, wanted):
    commit = hub.add(REPO, files)
    machine.downloads(REPO, commit)
    flip(machine.blob("config.json", files["config.json"]))
    assert contents(machine.downloads(REPO, commit)) == wanted


@pytest.mark.parametrize("damage", ["no reference", "half a reference", "half a list", "no links", "other link"])
def test_damaged_bookkeeping(hub, machine, files, wanted, damage):
    commit = hub.add(REPO, files)
    folder = machine.downloads()
    if damage == "no reference":
        shutil.rmtree(machine.repo_folder / "refs")
    elif damage == "half a reference":
        (machine.repo_folder / "refs" / "main").write_text(commit[:17])
    elif damage == "half a list":
        path = machine.repo_folder / "trees" / f"{commit}.json"
        path.write_text(path.read_text()[:99])
    elif damage == "no links":
        shutil.rmtree(folder)
    else:
        (folder / "config.json").unlink()
        (folder / "config.json").symlink_to((folder / "tokenizer_config.json").readlink())
    hub.requests.clear()
    assert machine.downloads() == folder
    assert contents(folder) == wanted
    assert hub.contents() == [], "every blob was there"
    assert machine.downloads(HF_HUB_OFFLINE="1") == folder


def test_offline_without_a_cache(hub, machine, files):
    hub.add(REPO, files)
    message = machine.fails(NOT_FOUND, HF_HUB_OFFLINE="1")
    assert REPO in message and str(machine.cache) in message and "HF_HUB_OFFLINE" in message
    assert not machine.cache.exists(), "nothing is made where nothing is written"
    machine.downloads()
    assert "revision 'v2' is not in the cache" in machine.fails(NOT_FOUND, REPO, "v2", HF_HUB_OFFLINE="1")
    assert hub.requests


def test_a_cache_that_cannot_be_made(hub, machine, files):
    hub.add(REPO, files)
    machine.home.mkdir()
    (machine.home / "hub").write_text("a file")
    message = machine.fails(IO)
    assert "cannot create the folder" in message and "HF_HUB_CACHE" in message
