"""Single roles of the demo model's cluster (`baton router`, `prefill`, `decode`), a process each, on the loopback."""

import pathlib
import re
import secrets
import subprocess

from prometheus import free_port
from running_time import wait_until


class Roles:
    """folder: an empty one, for keys and logs. Ends with kill()."""

    def __init__(self, folder, baton):
        self._folder, self._baton = pathlib.Path(folder), baton
        self._programs = {}
        self.control = free_port()
        self.new_key("key")

    def new_key(self, name):
        """A file with a cluster key."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32))

    def start(self, role, name, *arguments, key="key", environment=None):
        """environment: that of the program, if not this one's."""
        if role == "router":
            where = ["--router.control", f"127.0.0.1:{self.control}", "--port", "0"]
        else:
            where = ["--cluster.router", f"127.0.0.1:{self.control}", "--cluster.worker_name", name,
                     f"--{role}.threads", "1"]
        with open(self._folder / f"{name}.log", "wb") as log:
            self._programs[name] = subprocess.Popen(
                [self._baton, role, "--demo", "--cluster.key_file", self._folder / key, *where, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        wait_until(lambda: self._url(name) or self._programs[name].poll() is not None, 30)
        assert self._programs[name].poll() is None, self.log(name)
        return self._url(name)

    def _url(self, name):
        found = re.search(r"(?:listening|metrics) on (https?://[^/,\s]+)", self.log(name))
        return found and found[1]

    def pid(self, name):
        return self._programs[name].pid

    def log(self, name):
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def kill(self):
        for program in self._programs.values():
            program.kill()
            program.wait()
