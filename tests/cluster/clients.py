"""Clients of load.py in another process, where a cluster's network is."""
import json
import pathlib
import subprocess
import sys
import time

LOAD = pathlib.Path(__file__).with_name("load.py")


class Clients:
    """Within `with` they ask on and on. Then `result`, as load.py tells it, and `seconds`.
    command: what runs a command in the right namespaces. arguments: those of load.py."""

    def __init__(self, command, *arguments):
        self.command = [*command, sys.executable, "-B", str(LOAD), *map(str, arguments)]

    def __enter__(self):
        self.client = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
        if self.client.stdout.readline() != "begun\n":
            raise RuntimeError(f"no answers before the test: {self.client.communicate()[1][-2000:]}")
        self.begun = time.monotonic()
        return self

    def __exit__(self, *_):
        told, errors = self.client.communicate(timeout=180)
        if not told:
            raise RuntimeError(f"the clients ended without a result: {errors[-2000:]}")
        self.seconds = time.monotonic() - self.begun
        self.result = json.loads(told)
