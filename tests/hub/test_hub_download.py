"""Downloads that go well: what is taken, where it goes, and what is not asked for again."""

import threading

from conftest import REPO, contents


def test_takes_what_a_model_needs(hub, machine, files, wanted):
    commit = hub.add(REPO, files)
    done = machine.download()
    assert done.code == 0, done.error
    assert done.folder == machine.repo_folder / "snapshots" / commit
    assert contents(done.folder) == wanted
    assert (machine.repo_folder / "refs" / "main").read_text() == commit
    for name, content in wanted.items():
        pointer = done.folder / name
        assert pointer.is_symlink() and pointer.readlink().as_posix() == f"../../blobs/{hub.etag(name, content)}"
    assert not list(machine.repo_folder.rglob("*.incomplete"))
    asked = {r.path.rsplit("/", 1)[1] for r in hub.contents() if "/resolve/" in r.path}
    # An empty file is known without asking for it.
    assert asked == set(wanted) - {"empty.txt"}


def test_progress_counts_every_byte(hub, machine, files, wanted):
    hub.add(REPO, files)
    progress = machine.download().progress
    total = sum(map(len, wanted.values()))
    assert progress[0] == ("downloading", 0, total, 0, 0, len(wanted))
    assert progress[-1] == ("downloading", total, total, total, len(wanted), len(wanted))
    assert all(a[1] <= b[1] and a[3] <= b[3] and a[4] <= b[4] for a, b in zip(progress, progress[1:]))


def test_the_second_time_only_the_revision_is_asked_for(hub, machine, files):
    commit = hub.add(REPO, files)
    folder = machine.downloads()
    hub.requests.clear()
    done = machine.download()
    assert (done.folder, done.progress) == (folder, [])
    assert [r.path for r in hub.requests] == [f"/api/models/{REPO}/revision/main"]
    hub.requests.clear()
    assert machine.downloads(REPO, commit) == folder
    assert machine.downloads(HF_HUB_OFFLINE="1") == folder
    assert hub.requests == []


def test_revisions(hub, machine, files):
    first = hub.add(REPO, files | {"config.json": b'{"first": 1}'}, "v1")
    second = hub.add(REPO, files | {"config.json": b'{"second": 2}'}, "refs/pr/7")
    assert contents(machine.downloads(REPO, "v1"))["config.json"] == b'{"first": 1}'
    hub.requests.clear()
    assert machine.downloads(REPO, "refs/pr/7").name == second
    # The other files are in the cache under the same names.
    assert [r.path.rsplit("/", 1)[1] for r in hub.contents()] == ["config.json"]
    assert (machine.repo_folder / "refs" / "refs" / "pr" / "7").read_text() == second
    assert machine.downloads(REPO, first).name == first
    assert machine.downloads(REPO, "v1", HF_HUB_OFFLINE="1").name == first


def test_a_branch_that_moved(hub, machine, files):
    old = hub.add(REPO, files)
    machine.downloads()
    new = hub.add(REPO, files | {"generation_config.json": b'{"new": true}'})
    hub.fail(r"/resolve/", status=503, headers={"Retry-After": "0"}, times=100)
    machine.fails(12)
    assert (machine.repo_folder / "refs" / "main").read_text() == old, "the new snapshot is not complete yet"
    assert machine.downloads(HF_HUB_OFFLINE="1").name == old
    hub.faults.clear()
    assert machine.downloads().name == new
    assert (machine.repo_folder / "refs" / "main").read_text() == new


def test_the_list_of_files_comes_in_pages(hub, machine, files, wanted):
    hub.add(REPO, files)
    hub.page_size = 3
    assert contents(machine.downloads()) == wanted
    assert sum("/tree/" in r.path for r in hub.requests) == -(-len(files) // 3)


def test_weights_under_other_names(hub, machine, files):
    odd = {"config.json": b"{}", "part/odd.safetensors": b"weights", "other.safetensors": b"not in the index",
           "model.safetensors.index.json": b'{"weight_map": {"a": "part/odd.safetensors"}}'}
    hub.add(REPO, odd)
    folder = machine.downloads()
    del odd["other.safetensors"]
    assert contents(folder) == odd
    assert machine.downloads(HF_HUB_OFFLINE="1") == folder
    machine.blob("part/odd.safetensors", b"weights").unlink()
    assert "part/odd.safetensors" in machine.fails(11, HF_HUB_OFFLINE="1")
    assert contents(machine.downloads()) == odd


def test_files_are_fetched_side_by_side(hub, machine):
    """Four files, each held back until all four were asked for."""
    hub.add(REPO, {"config.json": b"{}"} | {f"model{i}.safetensors": b"%d" % i * 1000 for i in range(3)})
    barrier = threading.Barrier(4, timeout=30)
    take = hub.take

    def wait_for_all(request):
        fault = take(request)
        if "/resolve/" in request.path:
            barrier.wait()
        return fault

    hub.take = wait_for_all
    machine.downloads(REPO, "-", 4)
    assert not barrier.broken


def test_one_worker_is_enough(hub, machine, files, wanted):
    hub.add(REPO, files)
    assert contents(machine.downloads(REPO, "-", 1)) == wanted


def test_processes_share_the_work(hub, machine, files, wanted):
    hub.add(REPO, files)
    hub.pause, hub.piece = 0.005, 1 << 15
    processes = [machine.start(REPO) for _ in range(3)]
    done = [machine.finish(p) for p in processes]
    assert [d.code for d in done] == [0, 0, 0], [d.error for d in done]
    assert contents(done[0].folder) == wanted
    received = [r.path for r in hub.contents() if r.sent > 0]
    assert len(received) == len(set(received)), "a file was fetched twice"


def test_two_files_with_the_same_content(hub, machine):
    same = {"config.json": b"{}", "model1.safetensors": b"same" * 50_000, "model2.safetensors": b"same" * 50_000}
    hub.add(REPO, same)
    assert contents(machine.downloads()) == same
    assert sum(r.sent for r in hub.contents() if r.path.startswith("/cdn/")) == 200_000
