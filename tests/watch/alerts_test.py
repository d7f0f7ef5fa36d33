"""Each alert of deploy/alerts.py under the fault that it is for, injected into real processes with a real Prometheus:
it fires, no unrelated one does, and none does in a healthy cluster. Times of all rules are SCALE of what they are.

    scripts/alerts_test.sh [--baton FILE] [--slice]
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from prometheus import ROOT, Prometheus  # first: it knows where the others are
import alerts
from mixed_clients import MixedClients, post
import running_time
from roles import Roles
from running_time import wait_until
from served_baton import ServedBaton
from stopped_thread import stopped_thread

sys.path.append(str(ROOT / "tests/cluster"))
from certificates import Authority  # noqa: E402

OPTIONS = argparse.Namespace(baton="")
FAULTS = {}  # alert: the test that makes it fire
LONG = {"prompt": "one two three", "max_tokens": 900}  # so that workers are at it whenever something befalls them
# Tests that scripts/test.sh runs, a minute and a half. The others take long, or stop threads by ptrace.
SLICE = ("killed_worker", "stopped_worker", "refused_worker", "overload", "certificates")


def fires(*names, also=()):
    """A test of these alerts. also: those that its fault may make fire, too."""
    def marked(test):
        assert not FAULTS.keys() & set(names)
        FAULTS.update(dict.fromkeys(names, test.__name__))

        def run(self):
            self.names, self.also = set(names), set(also)
            test(self)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return marked


class Alerts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    # --- the cluster and who looks at it

    def serve(self, *arguments, model="--demo"):
        """`baton serve`, and Prometheus on all its pages."""
        served = ServedBaton(OPTIONS.baton, model, *arguments)
        self.addCleanup(served.kill)
        n_workers = len(served.children("prefill")) + len(served.children("decode"))
        pages = []

        def are_known():
            pages[:] = re.findall(r"metrics on (http://[^/]+)/metrics", served.log())
            return len(pages) == n_workers and served.is_healthy()

        wait_until(are_known, 30)
        self.watch([served.url], pages)
        return served

    def roles(self):
        roles = Roles(self.folder, OPTIONS.baton)
        self.addCleanup(roles.kill)
        return roles

    def watch(self, routers, workers):
        self.prometheus = Prometheus(self.folder / "prometheus", {"baton-router": routers, "baton-worker": workers})
        self.addCleanup(self.prometheus.close)
        wait_until(lambda: len(self.prometheus.query("up == 1")) == len(routers) + len(workers), 60)

    @contextlib.contextmanager
    def clients(self, url, n, pause=0):
        clients = MixedClients(url, n, pause)
        try:
            yield clients
        finally:
            clients.end()

    @contextlib.contextmanager
    def crowd(self, url, bodies, pause=0.2):
        """A client for each, which asks for it on and on, whatever the answer is; pause: seconds after a refusal."""
        over = threading.Event()

        def ask(body):
            encoded = json.dumps({**body, "ignore_eos": True}).encode()
            while not over.is_set():
                try:
                    post(url, encoded).read()
                except (OSError, http.client.HTTPException):
                    over.wait(pause)

        crowd = [threading.Thread(target=ask, args=(body,)) for body in bodies]
        for client in crowd:
            client.start()
        try:
            yield
        finally:
            over.set()
            for client in crowd:
                client.join()

    @contextlib.contextmanager
    def standing_engine(self, served):
        """That of decode0: its thread is stopped within a turn, not where it waits for work."""
        for _ in range(20):
            with stopped_thread(served.children("decode")[0], "baton-engine"):
                end = running_time.now() + 4
                while running_time.now() < end:
                    if self.prometheus.query('baton_engine_turn_seconds{worker="decode0"} > 1'):
                        yield
                        return
                    time.sleep(0.2)
        self.fail("its engine has no work")

    def tell(self, what, seconds):
        print(f"    {what} after {seconds:.1f} s", flush=True)

    # --- what is awaited

    def assertOnly(self, names):
        """Nothing but these fires now; returns what does."""
        firing = self.prometheus.firing()
        if not firing <= names:
            self.fail(f"{self.prometheus.query('ALERTS')}; the machine stood still for {running_time.stood():.0f} s")
        return firing

    def assertSilent(self, seconds):
        """Nothing fires for so long."""
        end = running_time.now() + seconds
        while running_time.now() < end:
            self.assertOnly(set())
            time.sleep(0.5)

    def assertFires(self, *names, seconds=60):
        """Each of them, or of this test's, in any order; nothing that the fault does not explain."""
        wanted, seen = set(names) or self.names, set()

        def have_fired():
            seen.update(self.assertOnly(self.names | self.also))
            return wanted <= seen

        self.tell(f"{', '.join(sorted(wanted))}: fired", wait_until(have_fired, seconds, 0.2))

    def assertEnds(self, *names, seconds=60):
        wanted = set(names) or self.names
        took = wait_until(lambda: not wanted & self.prometheus.firing(), seconds, 0.2)
        self.tell(f"{', '.join(sorted(wanted))}: silent again", took)

    # --- no fault

    def test_healthy(self):
        """All are silent beside clients for longer than any of them waits, and until the load is known."""
        served = self.serve("--prefill", "1", "--decode", "2", "--server.slo_ttft=60s", "--server.slo_itl=60s")
        with self.clients(served.url, 2, pause=1) as clients:
            wait_until(lambda: not self.assertOnly(set()) and
                       self.prometheus.query("baton_pool_desired_replicas > 0"), 120)
            self.assertSilent(45)
        self.assertEqual(clients.failures, [])

    # --- faults

    @fires("BatonDown", "BatonWorkersLost", also=["BatonHandoffsFail", "BatonLinkBroken"])
    def test_killed_worker(self):
        served = self.serve("--prefill", "1", "--decode", "2")
        with self.crowd(served.url, 6 * [LONG]):
            self.assertSilent(5)
            os.kill(served.children("decode")[0], signal.SIGKILL)
            self.assertFires()  # its successor answers on another port

    @fires("BatonNoWorkers", "BatonNotReady", also=["BatonDown"])
    def test_stopped_worker(self):
        served = self.serve("--prefill", "1", "--decode", "1")
        self.assertSilent(2)
        stopped = served.children("decode")[0]
        os.kill(stopped, signal.SIGSTOP)  # silent: lost, and nobody takes its place
        try:
            self.assertFires()
        finally:
            os.kill(stopped, signal.SIGCONT)
        self.assertEnds()

    @fires("BatonWorkerDisconnected")
    def test_refused_worker(self):
        roles = self.roles()
        router = roles.start("router", "router", "--colocated")
        whole = roles.start("decode", "decode0", "--colocated")
        roles.new_key("other")
        stranger = roles.start("decode", "decode1", "--colocated", key="other")
        self.watch([router], [whole, stranger])
        self.assertFires()
        self.assertEqual([labels["worker"] for labels, _ in self.prometheus.query('ALERTS{alertstate="firing"}')],
                         ["decode1"])

    @fires("BatonWorkerStands", also=["BatonWorkersLost"])
    def test_standing_engine(self):
        """It is given up, and its requests are computed anew."""
        served = self.serve("--prefill", "1", "--decode", "2", "--router.engine_patience=8s")
        with self.crowd(served.url, 6 * [LONG]):
            self.assertSilent(5)
            with self.standing_engine(served):
                self.assertFires()
            self.assertEnds()

    @fires("BatonErrors", also=["BatonDown", "BatonWorkersLost", "BatonHandoffsFail", "BatonLinkBroken"])
    def test_failing_requests(self):
        """Workers die again and again, and each request may lose one of them alone."""
        served = self.serve("--prefill", "1", "--decode", "2", "--router.max_lost_attempts=1")
        with self.crowd(served.url, 6 * [LONG]):
            self.assertSilent(5)
            for _ in range(4):
                os.kill(served.children("decode")[0], signal.SIGKILL)
                time.sleep(3)
            self.assertFires()

    @fires("BatonOverload")
    def test_overload(self):
        served = self.serve("--prefill", "1", "--decode", "1", "--router.max_waiting=4")
        with self.crowd(served.url, 12 * [{"prompt": "one two three", "max_tokens": 60}]):
            self.assertFires()

    @fires("BatonQueue")
    def test_long_prompts(self):
        """More text than the text thread can read, as from many addresses: what one sends would wait in its sockets."""
        served = self.serve("--prefill", "1", "--decode", "1", "--server.text_queue=512MiB",
                            "--server.loop_share_per_address=1")
        with self.crowd(served.url, 40 * [{"prompt": "one two three " * 70_000, "max_tokens": 1}], pause=0):
            self.assertFires()
        self.assertEnds()

    @fires("BatonKvFull")
    def test_full_pool(self):
        served = self.serve("--prefill", "1", "--decode", "1", "--router.local=false", "--decode.kv_memory=8MiB",
                            "--model.page_tokens=16")
        with self.crowd(served.url, [{"prompt": "one", "max_tokens": 500 + 10 * i} for i in range(32)]):
            self.assertFires()
            served.kill()  # answers would take long

    @fires("BatonTooFewWorkers")
    def test_more_load_than_workers(self):
        # The 125M shape's steps take nearly all of the time, as a real model's do; the demo model's take 60 % of it.
        served = self.serve("--prefill", "1", "--decode", "1", "--router.local=false", "--decode.max_batch=2",
                            model=f"random:{ROOT}/configs/shapes/llama-125m.json")
        with self.crowd(served.url, 6 * [{"prompt": [1, 2, 3], "max_tokens": 50}]):  # it has no tokenizer
            self.assertFires(seconds=180)  # a router knows nothing of it in its first minute

    @fires("BatonLinkBroken", "BatonHandoffsFail")
    def test_hanging_link(self):
        """No KV gets into the decode worker, as in a black hole: its link's thread stands."""
        served = self.serve("--prefill", "1", "--decode", "1")
        with self.clients(served.url, 3):
            self.assertSilent(5)
            with stopped_thread(served.children("decode")[0], "baton-link"):
                self.assertFires()
            self.assertEnds()

    @fires("BatonKvDamaged", also=["BatonHandoffsFail", "BatonLinkBroken"])
    def test_flipped_bits(self):
        library = self.folder / "flips_bits.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, ROOT / "tests/watch/flips_bits.c", "-ldl"],
                       check=True, timeout=60)
        roles = self.roles()
        router = roles.start("router", "router", "--prefill", 1, "--decode", 1, "--router.local=false")
        prefill = roles.start("prefill", "prefill0")
        decode = roles.start("decode", "decode0", environment={**os.environ, "LD_PRELOAD": str(library)})
        self.watch([router], [prefill, decode])
        with self.clients(router, 2):
            self.assertFires()

    @fires("BatonCancelsOverdue")
    def test_unanswered_cancel(self):
        """An engine hangs, is trusted for long, and the client of its request has gone."""
        served = self.serve("--prefill", "1", "--decode", "1", "--router.engine_patience=2m")
        answer = post(served.url, {"prompt": "one two three", "max_tokens": 2000, "ignore_eos": True, "stream": True})
        answer.readline()
        with self.standing_engine(served):
            answer.close()
            self.assertFires()  # after 30 s
        self.assertEnds()

    @fires("BatonCertificateExpires")
    def test_certificates(self):
        """Those of the API, of the control port and of a worker, each in its turn."""
        authority = Authority(self.folder / "authority", "cluster")
        names = {"api": ("/CN=localhost", "DNS:localhost,IP:127.0.0.1"), "router": ("/CN=r", "URI:baton://c/router"),
                 "decode": ("/CN=d", "URI:baton://c/both")}

        def sign(name, days):
            made = authority.sign(name, *names[name], days=days)
            for kind in ("key", "pem"):
                made.with_suffix(f".{kind}").rename(self.folder / f"{name}.{kind}")

        def cluster_tls(name):
            return ("--cluster.tls_cert", self.folder / f"{name}.pem", "--cluster.tls_key", self.folder / f"{name}.key",
                    "--cluster.tls_ca", authority.folder / "ca.pem", "--colocated")

        for name in names:
            sign(name, 30)
        roles = self.roles()
        router = roles.start("router", "router", *cluster_tls("router"), "--tls-cert", self.folder / "api.pem",
                             "--tls-key", self.folder / "api.key")
        worker = roles.start("decode", "decode0", *cluster_tls("decode"))
        self.watch([router], [worker])
        self.assertSilent(4)
        for name in names:
            print(f"    {name}:", flush=True)
            sign(name, 5)
            self.assertFires()
            sign(name, 30)
            self.assertEnds()

    @fires("BatonGoodputFalls", "BatonGoodputSlips")
    def test_missed_limits(self):
        served = self.serve("--prefill", "1", "--decode", "1", "--server.slo_ttft=1ms")
        with self.clients(served.url, 2, pause=0.2):
            self.assertFires(seconds=120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    parser.add_argument("--slice", action="store_true", help="those of SLICE alone")
    options, rest = parser.parse_known_args(namespace=OPTIONS)
    if options.slice:
        rest += [f"Alerts.test_{name}" for name in SLICE]
    running_time.start()
    unittest.main(argv=[sys.argv[0], "-v", *rest])


if __name__ == "__main__":
    main()
