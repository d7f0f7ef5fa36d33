"""A hub for tests: the list of files of a revision and the files, as huggingface.co answers, on a port of 127.0.0.1.
Large files are at another port (another host to a client), behind a redirect. Faults are set by the test."""

import hashlib
import http.server
import json
import re
import socket
import threading
import urllib.parse


def git_blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def digest_of(data, is_large):
    return hashlib.sha256(data).hexdigest() if is_large else git_blob_id(data)


class Hub:
    """files: name -> bytes; those in `large` are told by SHA-256 and kept at the second port."""

    def __init__(self, model, files, large=(), revisions=("main",), commit="c0ffee" + "0" * 34, tls=None):
        self.model, self.files, self.large = model, files, set(large)
        self.revisions, self.commit = set(revisions) | {commit}, commit
        self.token = None             # asked for where set
        self.gate = None              # X-Error-Code of a refusal, as GatedRepo
        self.told = {}                # name -> (size, digest) that the list tells instead
        self.cuts = {}                # name -> list of bytes after which an answer is cut, one answer each
        self.statuses = []            # answered instead of the next answers of files
        self.ranges = True            # whether ranges are answered
        self.held = set()             # names whose answers do not end before they are taken out
        self.requests = []            # (port's name, path, headers)
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.store = self._start("store")
        self.main = self._start("main")
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.main.server_port}"
        if tls:  # of the first port: an ssl.SSLContext
            self.main.socket = tls.wrap_socket(self.main.socket, server_side=True)

    def _start(self, name):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.requests.append((name, self.path, dict(self.headers)))
                try:
                    hub.answer(self, name)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def stop(self):
        for server in (self.main, self.store):
            server.shutdown()
            server.server_close()

    def asked(self, port, name):
        """The headers of requests for a file at one of the two ports."""
        return [headers for at, path, headers in self.requests if at == port and path.split("?")[0].endswith("/" + name)]

    def _say(self, handler, status, body=b"", headers=()):
        handler.send_response(status)
        for key, value in headers:
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, handler, port):
        path = urllib.parse.unquote(handler.path.split("?")[0])
        if port == "store":
            assert "signature=secret" in handler.path
            return self._file(handler, path.removeprefix("/"))
        if self.gate:
            return self._say(handler, 401 if "Authorization" not in handler.headers else 403, b"no",
                             [("X-Error-Code", self.gate)])
        if self.token and handler.headers.get("Authorization") != "Bearer " + self.token:
            return self._say(handler, 401, b"no", [("X-Error-Code", "RepoNotFound")])
        listed = re.fullmatch(rf"/api/models/{self.model}/revision/(.+)", path)
        if listed:
            return self._list(handler, listed[1])
        asked = re.fullmatch(rf"/{self.model}/resolve/{self.commit}/(.+)", path)
        if not asked or asked[1] not in self.files:
            code = "EntryNotFound" if asked else "RepoNotFound"
            return self._say(handler, 404 if asked else 401, b"no", [("X-Error-Code", code)])
        if asked[1] in self.large:
            place = f"http://127.0.0.1:{self.store.server_port}/{asked[1]}?signature=secret"
            return self._say(handler, 302, b"moved", [("Location", place)])
        return self._file(handler, asked[1])

    def _list(self, handler, revision):
        if revision not in self.revisions:
            return self._say(handler, 404, b"no", [("X-Error-Code", "RevisionNotFound")])
        siblings = []
        for name, data in self.files.items():
            size, digest = self.told.get(name, (len(data), digest_of(data, name in self.large)))
            file = {"rfilename": name, "size": size, "blobId": git_blob_id(data)}
            if name in self.large:
                file["lfs"] = {"sha256": digest, "size": size, "pointerSize": 134}
            else:
                file["blobId"] = digest
            siblings.append(file)
        body = json.dumps({"id": self.model, "sha": self.commit, "siblings": siblings}).encode()
        self._say(handler, 200, body, [("Content-Type", "application/json")])

    def _file(self, handler, name):
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            status = self.statuses.pop(0) if self.statuses else None
            cut = self.cuts[name].pop(0) if self.cuts.get(name) else None
        try:
            if status:
                return self._say(handler, status, b"not now", [("Retry-After", "1")])
            self._send(handler, name, cut)
        finally:
            with self.lock:
                self.at_once -= 1

    def _send(self, handler, name, cut):
        data = self.files[name]
        start, asked = 0, handler.headers.get("Range")
        if asked and self.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(data):
                return self._say(handler, 416)
        body = data[start:]
        handler.send_response(206 if asked and self.ranges else 200)
        if asked and self.ranges:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        first = len(body) // 2 if cut is None else cut
        handler.wfile.write(body[:first])
        handler.wfile.flush()
        while name in self.held:
            threading.Event().wait(0.02)
        if cut is None:
            handler.wfile.write(body[first:])
        else:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
