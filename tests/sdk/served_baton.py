"""A real `baton serve` with its child processes, started on a free port."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request


def wait_until(condition, seconds):
    """Looks every 10 ms whether `condition` holds, and once after `seconds`: then it fails."""
    deadline = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() > deadline  # also where the machine stood still meanwhile
        if condition():
            return
        assert not is_last, f"still not so after {seconds} s"
        time.sleep(0.01)


def _words_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as command:
            return command.read().split("\0")
    except FileNotFoundError:
        return []


class ServedBaton:
    def __init__(self, binary, *arguments):
        self._process = subprocess.Popen(
            [binary, "serve", *arguments, "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self._lines = []
        self._is_ready = threading.Event()
        self.url = None
        self._reader = threading.Thread(target=self._read_output)
        self._reader.start()
        self._is_ready.wait(60)
        if self.url is None:
            self.kill()
            raise RuntimeError("baton serve did not get ready:\n" + self.log())

    def _read_output(self):
        for line in self._process.stdout:
            self._lines.append(line)
            ready = re.match(r"ready +(https?://\S+)", line)
            if ready:
                self.url = ready[1]
                self._is_ready.set()
        self._is_ready.set()

    @property
    def pid(self):
        return self._process.pid

    def log(self):
        return "".join(self._lines)

    @property
    def address(self):
        host, port = self.url.removeprefix("http://").rsplit(":", 1)
        return host, int(port)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def is_healthy(self):
        try:
            return self.get("/health") == {"status": "ok"}
        except urllib.error.HTTPError:
            return False

    def children(self, role):
        """The process ids of the children with this role: prefill or decode."""
        pid = self._process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            return [int(child) for child in children.read().split() if role in _words_of(child)]

    def terminate(self):
        """SIGTERM; returns the exit status."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(30)
        finally:
            self.kill()

    def kill(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
