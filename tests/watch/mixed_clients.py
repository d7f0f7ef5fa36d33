"""Clients of a test's server: threads that stream completions of several kinds until they are told to end."""

import json
import threading
import urllib.request


def post(url, body, timeout=60):
    """body: what JSON says, or its bytes."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(
        url + "/v1/completions", encoded, {"Content-Type": "application/json"}), timeout=timeout)


class MixedClients:
    """Short and long prompts, repeated ones, clients that leave. pause: seconds between a client's requests."""

    def __init__(self, url, n, pause=0):
        self._url, self._pause, self._end = url, pause, threading.Event()
        self.failures = []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n)]
        for thread in self._threads:
            thread.start()

    def _run(self, kind):
        turn = 0
        while not self._end.wait(self._pause if turn else 0):
            turn += 1
            words = (4, 40, 400)[turn % 3]
            body = {"prompt": f"{kind if turn % 2 else turn} " + "one two three " * words,
                    "max_tokens": 16 + 8 * (turn % 4), "ignore_eos": True, "stream": True}
            try:
                answer = post(self._url, body)
                if turn % 7 == 0:
                    answer.readline()
                    answer.close()  # goes away in the middle
                elif not answer.read().endswith(b"data: [DONE]\n\n"):
                    self.failures.append("a stream that does not end")
            except (OSError, ValueError) as error:
                self.failures.append(str(error))

    def end(self):
        self._end.set()
        for thread in self._threads:
            thread.join()
