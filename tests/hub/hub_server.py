"""A small Hugging Face Hub on 127.0.0.1 that can misbehave on request.

It answers what snapshot_download asks: the commit of a revision, the list of a commit's files (in pages), and the files.
Large ones (*.safetensors, and what `large` names) are redirected to /cdn under the host name "localhost", as the real Hub
redirects them to another host.
"""

import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


def git_oid(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Fault:
    """What happens to the next `times` requests whose path matches."""

    path: str  # regular expression
    times: int = 1
    status: int = 0  # answer with this instead
    headers: dict = field(default_factory=dict)
    cut_after: int = -1  # bytes of the body before the connection is cut
    stall_after: int = -1  # bytes of the body before nothing more comes
    ignore_range: bool = False
    wrong_range: bool = False  # 206, but from another place than asked for
    content: bytes | None = None  # send this instead
    announce: int = 0  # added to Content-Length
    chunked: bool = False  # no Content-Length


@dataclass
class Request:
    method: str
    path: str
    headers: dict
    sent: int = 0  # bytes of the body
    status: int = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        hub = self.server.hub
        path = unquote(urlsplit(self.path).path)
        self.record = Request(self.command, path, {k.lower(): v for k, v in self.headers.items()})
        fault = hub.take(self.record)
        if fault.status:
            return self.send(fault.status, b'{"error": "asked for"}', fault.headers, Fault(""))
        refusal = hub.refusal(self.record)
        if refusal:
            status, code = refusal
            return self.send(status, b"{}", {"X-Error-Code": code} if code else {}, fault)
        if match := re.fullmatch(r"/cdn/([0-9a-f]+)", path):
            return self.send_file(hub.blobs[match[1]], {"ETag": '"storage"'}, fault)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/(.+)|/tree/([^/]+)|)", path):
            return self.api(match, fault)
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self.resolve(*match.groups(), fault)
        return self.send(404, b"{}", {}, fault)

    def api(self, match, fault):
        hub = self.server.hub
        repo, revision, commit = match[1], match[3] or match[4] or "main", match[4]
        if commit is None:
            files = [{"rfilename": name} for name in hub.repos[repo][hub.commit(repo, revision)]]
            answer = {"id": repo, "sha": hub.commit(repo, revision), "siblings": files, "private": False, "tags": []}
            return self.send(200, json.dumps(answer).encode(), {}, fault)
        entries = [*hub.extra_entries, *(hub.entry(name, c) for name, c in hub.repos[repo][commit].items())]
        query = dict(part.split("=") for part in urlsplit(self.path).query.split("&") if "=" in part)
        start = int(query.get("cursor", 0))
        headers = {}
        if start + hub.page_size < len(entries):
            address = f"{hub.url}/api/models/{repo}/tree/{commit}?recursive=true&cursor={start + hub.page_size}"
            headers["Link"] = f'<{address}>; rel="next"'
        return self.send(200, json.dumps(entries[start:start + hub.page_size]).encode(), headers, fault)

    def resolve(self, repo, revision, name, fault):
        hub = self.server.hub
        commit = hub.commit(repo, revision)
        headers = {"X-Repo-Commit": commit}
        if name not in hub.repos[repo][commit]:
            return self.send(404, b"{}", {**headers, "X-Error-Code": "EntryNotFound"}, fault)
        content = hub.repos[repo][commit][name]
        if not hub.is_large(name):
            return self.send_file(content, {**headers, "ETag": f'"{git_oid(content)}"'}, fault)
        sha256 = hashlib.sha256(content).hexdigest()
        headers |= {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(len(content)),
                    "Location": f"{hub.cdn_url}/cdn/{sha256}"}
        return self.send(302, b"", headers, fault)

    def send_file(self, content, headers, fault):
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match and not fault.ignore_range:
            start = int(match[1])
            if start >= len(content):
                return self.send(416, b"", {"Content-Range": f"bytes */{len(content)}"}, fault)
            if fault.wrong_range:
                start = 0
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return self.send(206, content[start:], headers, fault)
        return self.send(200, content, headers, fault)

    def send(self, status, body, headers, fault):
        if fault.content is not None:
            body = fault.content
        self.record.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if fault.chunked:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body) + fault.announce))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = min(n for n in (fault.cut_after, fault.stall_after, len(body)) if n >= 0)
        with contextlib.suppress(ConnectionError):
            self.push(body[:end])
            if fault.stall_after >= 0:
                self.server.hub.released.wait(60)
        if end < len(body) or fault.announce > 0:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def push(self, body):
        """In pieces, with a pause between them where the server is slow."""
        hub = self.server.hub
        for start in range(0, len(body), hub.piece):
            piece = body[start:start + hub.piece]
            self.wfile.write(piece)
            self.record.sent += len(piece)
            if hub.pause:
                time.sleep(hub.pause)


class Hub:
    def __init__(self, tls=None):
        """`tls`: an ssl.SSLContext, for https."""
        self.repos = {}  # name → commit → file name → content
        self.revisions = {}  # (name, branch or tag) → commit
        self.blobs = {}  # sha256 → content
        self.large = {"tokenizer.json"}
        self.extra_entries = []  # put into every list of files
        self.page_size = 1000
        self.token = None  # needed for every request to the Hub itself
        self.gated = set()
        self.piece, self.pause = 1 << 16, 0
        self.requests = []
        self.faults = []
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.hub = self
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        port, scheme = self.server.server_address[1], "https" if tls else "http"
        self.url, self.cdn_url = f"{scheme}://127.0.0.1:{port}", f"{scheme}://localhost:{port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def add(self, repo, files, revision="main"):
        """A commit with these files; returns its name."""
        commit = hashlib.sha1(repr((repo, sorted(files.items()))).encode()).hexdigest()
        self.repos.setdefault(repo, {})[commit] = dict(files)
        self.revisions[repo, revision] = commit
        for content in files.values():
            self.blobs[hashlib.sha256(content).hexdigest()] = content
        return commit

    def commit(self, repo, revision):
        return self.revisions.get((repo, revision), revision)

    def is_large(self, name):
        return name.endswith((".safetensors", ".bin", ".gguf")) or name in self.large

    def entry(self, name, content):
        entry = {"type": "file", "path": name, "oid": git_oid(content), "size": len(content)}
        if self.is_large(name):
            entry["oid"] = hashlib.sha1(b"pointer" + content).hexdigest()
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return entry

    def etag(self, name, content):
        return hashlib.sha256(content).hexdigest() if self.is_large(name) else git_oid(content)

    def fail(self, path, **fault):
        self.faults.append(Fault(path, **fault))

    def take(self, request):
        """Logs the request and returns the fault meant for it."""
        with self.lock:
            self.requests.append(request)
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.path, request.path):
                    fault.times -= 1
                    return fault
        return Fault("")

    def refusal(self, request):
        """(status, error code) for what this Hub does not have or show; as the real one answers."""
        match = re.match(r"/(?:api/models/)?([^/]+/[^/]+)(?:/(?:resolve|revision|tree)/([^/]+))?", request.path)
        if not match or request.path.startswith("/cdn/"):
            return None
        authorization = request.headers.get("authorization")
        if self.token and authorization != f"Bearer {self.token}":
            return 401, ""
        if match[1] in self.gated and "/resolve/" in request.path:
            return (403 if authorization else 401), "GatedRepo"
        if match[1] not in self.repos:
            return (404 if authorization else 401), "RepoNotFound"
        revision = request.path.split("/revision/")[1] if "/revision/" in request.path else match[2] or "main"
        if self.commit(match[1], revision) not in self.repos[match[1]]:
            return 404, "RevisionNotFound"
        return None

    def contents(self, name=""):
        """Requests for the bytes of files (of those whose path holds `name`)."""
        return [r for r in self.requests
                if r.method == "GET" and (r.path.startswith("/cdn/") or "/resolve/" in r.path) and name in r.path]
