"""Servers and networks that misbehave: the right bytes in the end, or an error that says what to do."""

import signal
import time

import pytest

from conftest import INVALID, IO, NOT_FOUND, CANCELLED, REPO, contents

WEIGHTS = "model.safetensors"


@pytest.fixture
def small(hub):
    """A repository of two files, one of them large."""
    files = {"config.json": b'{"a": 1}', WEIGHTS: bytes(range(256)) * 16_000}
    hub.add(REPO, files)
    return files


def of_weights(hub):
    return [r for r in hub.contents() if r.path.startswith("/cdn/")]


def ranges(hub):
    return [r.headers.get("range") for r in of_weights(hub)]


def test_a_cut_connection_is_gone_on_with(hub, machine, small):
    hub.fail("/cdn/", cut_after=1_000_000)
    hub.fail("/cdn/", cut_after=700_000)
    assert contents(machine.downloads()) == small
    assert ranges(hub) == [None, "bytes=1000000-", "bytes=1700000-"]
    assert sum(r.sent for r in of_weights(hub)) == len(small[WEIGHTS])


def test_cuts_without_end_are_no_failure_while_bytes_arrive(hub, machine, small):
    hub.fail("/cdn/", cut_after=300_000, times=8)
    started = time.monotonic()
    assert contents(machine.downloads()) == small
    assert len(of_weights(hub)) == 9
    assert time.monotonic() - started < 20  # the pause stays the shortest one


def test_a_server_without_ranges(hub, machine, small):
    hub.fail("/cdn/", cut_after=1_000_000)
    hub.fail("/cdn/", ignore_range=True)
    assert contents(machine.downloads()) == small
    assert ranges(hub) == [None, "bytes=1000000-"]


def test_a_server_that_sends_another_range(hub, machine, small):
    hub.fail("/cdn/", cut_after=1_000_000)
    hub.fail("/cdn/", wrong_range=True)
    assert contents(machine.downloads()) == small
    assert ranges(hub) == [None, "bytes=1000000-", None]


def test_an_interrupted_process_leaves_what_it_has(hub, machine, small):
    hub.fail("/cdn/", stall_after=1_500_000)
    process = machine.start(REPO)
    blob = machine.blob(WEIGHTS, small[WEIGHTS])
    incomplete = blob.with_name(blob.name + ".incomplete")
    deadline = time.monotonic() + 30
    while not incomplete.exists() or incomplete.stat().st_size < 1_500_000:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert machine.finish(process).code == -signal.SIGKILL
    assert "not in the cache" in machine.fails(NOT_FOUND, HF_HUB_OFFLINE="1")
    done = machine.download()
    assert contents(done.folder) == small
    assert ranges(hub)[-1] == "bytes=1500000-"
    assert of_weights(hub)[-1].sent == len(small[WEIGHTS]) - 1_500_000


def test_a_stop_leaves_what_arrived(hub, machine, small):
    hub.pause = 0.01
    done = machine.download(REPO, "-", 1, 500_000)
    assert done.code == CANCELLED
    kept = done.progress[-1][1]
    assert 500_000 <= kept < len(small[WEIGHTS])
    assert contents(machine.downloads()) == small
    assert ranges(hub) == [None, f"bytes={kept}-"]


@pytest.mark.parametrize("left", [b"garbage" * 1000, b"x" * 5_000_000])
def test_what_was_left_is_not_trusted(hub, machine, small, left):
    blob = machine.blob(WEIGHTS, small[WEIGHTS])
    blob.parent.mkdir(parents=True)
    blob.with_name(blob.name + ".incomplete").write_bytes(left)
    assert contents(machine.downloads()) == small
    assert ranges(hub)[-1] is None


def test_a_complete_file_that_only_lacks_its_name(hub, machine, small):
    blob = machine.blob(WEIGHTS, small[WEIGHTS])
    blob.parent.mkdir(parents=True)
    blob.with_name(blob.name + ".incomplete").write_bytes(small[WEIGHTS])
    assert contents(machine.downloads()) == small
    assert of_weights(hub) == []


@pytest.mark.parametrize("name,path", [(WEIGHTS, "/cdn/"), ("config.json", "config.json")])
def test_wrong_bytes_once(hub, machine, small, name, path):
    hub.fail(path, content=b"?" * len(small[name]))
    assert contents(machine.downloads()) == small


@pytest.mark.parametrize("name,path", [(WEIGHTS, "/cdn/"), ("config.json", "config.json")])
def test_wrong_bytes_always(hub, machine, small, name, path):
    hub.fail(path, content=b"?" * len(small[name]), times=100)
    message = machine.fails(IO)
    assert name in message and "not the file that was asked for" in message and "checksum" in message
    assert not machine.blob(name, small[name]).exists()


LENGTHS = {
    "announces more": {"announce": 1000},
    "announces less": {"announce": -1000},
    "short": {"content": b"short"},
    "long": {"content": b"long" * 2_000_000},
    "long without a length": {"content": b"long" * 2_000_000, "chunked": True},
    "short without a length": {"content": b"short", "chunked": True},
    "no such range": {"status": 416},
}


@pytest.mark.parametrize("kind", LENGTHS)
def test_lengths_that_cannot_be(hub, machine, small, kind):
    hub.fail("/cdn/", times=2, **LENGTHS[kind])
    assert contents(machine.downloads()) == small


def test_a_body_without_a_length(hub, machine, small):
    hub.fail("/cdn/", chunked=True)
    assert contents(machine.downloads()) == small


def test_a_stalled_connection(hub, machine, small):
    hub.fail("/cdn/", stall_after=1_000_000)
    assert contents(machine.downloads(HF_HUB_DOWNLOAD_TIMEOUT="1")) == small
    assert ranges(hub) == [None, "bytes=1000000-"]


@pytest.mark.parametrize("path", ["/revision/", "/tree/", "/resolve/.*config.json", "/cdn/"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server(hub, machine, small, path, status):
    hub.fail(path, status=status, headers={"Retry-After": "0"}, times=3)
    assert contents(machine.downloads()) == small


def test_retry_after_is_kept(hub, machine, small):
    hub.fail("/revision/", status=429, headers={"Retry-After": "2"})
    started = time.monotonic()
    machine.downloads()
    assert time.monotonic() - started >= 2


def test_a_server_that_stays_busy(hub, machine, small):
    hub.fail("/revision/", status=503, headers={"Retry-After": "0"}, times=100)
    message = machine.fails(IO)
    assert "HTTP 503" in message and "(tried 4 times)" in message and hub.url in message


def test_a_server_that_asks_for_hours(hub, machine, small):
    hub.fail("/revision/", status=429, headers={"Retry-After": "7200"})
    assert "wait 7200 s" in machine.fails(IO)


def test_no_server(hub, machine, small):
    folder = machine.downloads()
    nobody = "http://127.0.0.1:9"
    started = time.monotonic()
    assert machine.downloads(HF_ENDPOINT=nobody) == folder, "the cache does"
    assert time.monotonic() - started < 3
    assert nobody in machine.fails(IO, "org/other", HF_ENDPOINT=nobody)
    assert machine.downloads(HF_ENDPOINT="http://no-such-host.invalid") == folder


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_cached_model_survives_refusals(hub, machine, small, status):
    folder = machine.downloads()
    hub.fail("/api/", status=status, times=100)
    assert machine.downloads() == folder


def test_no_such_repository(hub, machine, small):
    message = machine.fails(IO, "org/modle")
    assert "org/modle" in message and "no such repository" in message and "spelling" in message and "HF_TOKEN" in message
    message = machine.fails(NOT_FOUND, "org/modle", HF_TOKEN="hf_x")
    assert "no such repository" in message and "no folder of that name" in message


def test_no_such_revision(hub, machine, small):
    machine.downloads()
    assert machine.fails(NOT_FOUND, REPO, "v9") == f"{REPO}: no such branch, tag or commit: 'v9'"


def test_a_private_repository(hub, machine, small):
    hub.token = "hf_secret"
    assert "HF_TOKEN" in machine.fails(IO)
    message = machine.fails(IO, HF_TOKEN="hf_wrong")
    assert "the token was refused" in message and "hf_wrong" not in message
    assert contents(machine.downloads(HF_TOKEN="hf_secret")) == small


def test_the_token_file_and_who_sees_the_token(hub, machine, small):
    hub.token = "hf_secret"
    machine.home.mkdir(parents=True)
    (machine.home / "token").write_text("hf_secret\n")
    assert contents(machine.downloads()) == small
    for request in hub.requests:
        assert ("authorization" in request.headers) == (not request.path.startswith("/cdn/")), request


def test_a_gated_repository(hub, machine, small):
    hub.gated.add(REPO)
    message = machine.fails(IO)
    assert "gated" in message and f"{hub.url}/{REPO}" in message and "HF_TOKEN" in message
    assert "was not let in" in machine.fails(IO, HF_TOKEN="hf_x")


@pytest.mark.parametrize("answer", [b"<html>log in</html>", b"[]", b'{"sha": "x"}', b'{"sha": null}', b""])
def test_something_else_than_a_hub(hub, machine, small, answer):
    hub.fail("/revision/", content=answer, times=100)
    assert "HF_ENDPOINT" in machine.fails(IO)


@pytest.mark.parametrize("path", ["../../../escaped.json", "/tmp/escaped.json", "a/../../../../escaped.json", "..", "a\\b.json"])
def test_file_names_that_would_leave_the_cache(hub, machine, small, path):
    hub.extra_entries = [{"type": "file", "path": path, "oid": "0" * 40, "size": 2}]
    assert "refused the file name" in machine.fails(IO)
    assert not list(machine.home.parent.rglob("*escaped*"))
    assert hub.contents() == []


def test_blob_names_that_would_leave_the_cache(hub, machine, small):
    hub.extra_entries = [{"type": "file", "path": "x.json", "oid": "../../x", "size": 2}]
    assert "checksum" in machine.fails(IO)


def test_more_than_the_disk_holds(hub, machine, small):
    hub.extra_entries = [{"type": "file", "path": "model-2.safetensors", "oid": "0" * 40, "size": 1,
                          "lfs": {"oid": "0" * 64, "size": 10**15, "pointerSize": 130}}]
    message = machine.fails(IO)
    assert "1000000.0 GB" in message and "HF_HUB_CACHE" in message
    assert hub.contents() == []


@pytest.mark.parametrize("name", ["../x", "a/b/c", "/etc", ".", "a/..", "a--b/c", "http://x/y"])
def test_names_that_are_none(hub, machine, name):
    assert "ORG/NAME" in machine.fails(INVALID, name)
    assert hub.requests == []


def test_revisions_that_are_none(hub, machine, small):
    for revision in ("../main", "a b", "/x"):
        assert "revision" in machine.fails(INVALID, REPO, revision)
    assert hub.requests == []
