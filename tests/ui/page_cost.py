"""Processor time of the router for a page /ui that is open and updated, beside streams of several workers. Headless
Chromium shows how often the page asks; then readers that ask the same as often are there and away in turns, many of
them, since one is lost in the noise. More than LIMIT of a core for a page fails.

    scripts/ui_test.sh --cost     50 s; the machine should do nothing else
"""

import argparse
import http.client
import json
import os
import sys
import threading
import time

from browser import Browser

for room in ("sdk", "watch"):
    sys.path.append(os.path.join(os.path.dirname(__file__), "..", room))
from mixed_clients import post  # noqa: E402
from served_baton import ServedBaton  # noqa: E402

LIMIT = 0.01  # of a core
READERS, ROUNDS, PHASE_S = 16, 4, 4
STREAMS, TOKENS = 8, 50  # that begin each second


def core_seconds(pid):
    """Of all threads of the process that live."""
    seconds = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as told:
            seconds += int(told.read().split()[0]) / 1e9
    return seconds


class EachSecond:
    """Threads that do something once a second, each at a time of its own, until end()."""

    def __init__(self, n, act):
        self._act, self._over, self.failures = act, threading.Event(), []
        self._threads = [threading.Thread(target=self._run, args=(i, i / n)) for i in range(n)]
        for thread in self._threads:
            thread.start()

    def _run(self, number, next_at):
        next_at += time.monotonic()
        try:
            while not self._over.wait(max(0, next_at - time.monotonic())):
                next_at += 1
                self._act(number)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.failures.append(repr(error))

    def end(self):
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise SystemExit(f"page_cost: {self.failures[0]}")


class Readers(EachSecond):
    """Read what goes on as LivePoll of server/ui/api.js does."""

    def __init__(self, address):
        self._connections = [http.client.HTTPConnection(*address, timeout=10) for _ in range(READERS)]
        self._cursors = [""] * READERS
        self.n_answers = self.n_bytes = 0
        super().__init__(READERS, self._ask)

    def _ask(self, number):
        connection = self._connections[number]
        connection.request("GET", f"/v1/cluster/live?after={self._cursors[number]}",
                           headers={"Cache-Control": "no-cache", "Accept-Encoding": "gzip, deflate, br"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise ValueError(f"/v1/cluster/live: {answer.status}")
        self._cursors[number] = json.loads(body)["cursor"]
        self.n_answers += 1
        self.n_bytes += len(body)


def stream(url, number):
    body = {"prompt": f"{number} one two three", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    with post(url, body, timeout=30) as answer:
        if not answer.read().endswith(b"data: [DONE]\n\n"):
            raise ValueError("a stream that does not end")


def questions_of_the_page(url, pictures):
    """How often the page asks in a second, as the browser tells, while its figures are shown."""
    browser = Browser(pictures)
    try:
        browser.open(f"{url}/ui#/live")
        browser.wait(lambda: "ready" in browser.text("#state"))
        browser.script("performance.clearResourceTimings()")
        begun = time.monotonic()
        time.sleep(5)
        names = browser.script("return performance.getEntriesByType('resource').map((each) => each.name)")
        seconds = time.monotonic() - begun
        return len([name for name in names if "/v1/cluster/live?after=" in name]) / seconds
    finally:
        browser.close()


def share(pid, seconds):
    """Of a core, of the process, from now on for so long."""
    begun, used = time.monotonic(), core_seconds(pid)
    time.sleep(seconds)
    return (core_seconds(pid) - used) / (time.monotonic() - begun)


def measure(served, pictures):
    router, = served.children("router")
    streams = EachSecond(STREAMS, lambda number: stream(served.url, number))
    with_pages, without, n_answers, n_bytes = [], [], 0, 0
    try:
        rate = questions_of_the_page(served.url, pictures)
        if not 0.5 < rate < 1.2:
            raise SystemExit(f"page_cost: the page asks {rate:.2f} times a second; the readers here ask once")
        for _ in range(ROUNDS):
            without.append(share(router, PHASE_S))
            readers = Readers(served.address)
            time.sleep(1)  # they open
            n_answers -= readers.n_answers
            n_bytes -= readers.n_bytes
            with_pages.append(share(router, PHASE_S))
            n_answers += readers.n_answers
            n_bytes += readers.n_bytes
            readers.end()
    finally:
        streams.end()
    return rate, without, with_pages, n_bytes / n_answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    parser.add_argument("--pictures", required=True)
    options = parser.parse_args()
    served = ServedBaton(options.baton, "--demo", "--prefill", "2", "--decode", "4", "--router.local=false",
                         "--log.level=warn")
    try:
        rate, without, with_pages, n_bytes = measure(served, options.pictures)
    finally:
        served.kill()
    without_share, with_share = sum(without) / ROUNDS, sum(with_pages) / ROUNDS
    page = (with_share - without_share) / READERS
    print(f"six workers, {STREAMS * TOKENS} tokens/s in {STREAMS} streams that begin each second")
    print(f"router without pages   {100 * without_share:6.2f} % of a core ({min(without):.4f} to {max(without):.4f})")
    print(f"router with {READERS} pages   {100 * with_share:6.2f} % of a core "
          f"({min(with_pages):.4f} to {max(with_pages):.4f})")
    print(f"a page                 {100 * page:6.3f} % of a core, {n_bytes:.0f} bytes an update, "
          f"{rate:.2f} updates a second in the browser")
    if page > LIMIT:
        raise SystemExit(f"page_cost: more than {100 * LIMIT:.0f} % of a core")


if __name__ == "__main__":
    main()
