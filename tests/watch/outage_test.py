"""What is around Baton fails: Prometheus hangs or dies, readers of metrics do not read, a collector of traces hangs, a
name server knows nothing, and the API server of Kubernetes does not answer. Serving goes on, and the log has one line
where Baton has something to say.

    scripts/outage_test.sh [--baton FILE]
"""

import argparse
import os
import pathlib
import signal
import socket
import sys
import tempfile
import unittest
import urllib.request

from prometheus import ROOT, Prometheus  # first: it knows where the others are
from mixed_clients import MixedClients, post
import running_time
from roles import Roles
from running_time import wait_until
from served_baton import ServedBaton

sys.path.append(str(ROOT / "tests/cluster"))
from certificates import Authority  # noqa: E402

OPTIONS = argparse.Namespace(baton="")


class Listener:
    """Takes connections and never answers; keeps them."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        self._taken = []

    def n_connections(self):
        try:
            while True:
                self._taken.append(self._socket.accept()[0])
        except BlockingIOError:
            return len(self._taken)

    def close(self):
        for each in (self._socket, *self._taken):
            each.close()


class Outages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_serves(self, url, seconds=3):
        """Clients of every kind get their answers for so long."""
        clients = MixedClients(url, 3)
        end = running_time.now() + seconds
        wait_until(lambda: running_time.now() > end, 60, 0.1)
        clients.end()
        self.assertEqual(clients.failures, [])

    def test_a_prometheus_that_hangs_and_then_dies(self):
        served = ServedBaton(OPTIONS.baton, "--demo", "--prefill", "1", "--decode", "1")
        self.addCleanup(served.kill)
        prometheus = Prometheus(self.folder / "prometheus", {"baton-router": [served.url]})
        self.addCleanup(prometheus.close)
        wait_until(lambda: prometheus.query("up == 1"), 30)
        host, port = served.address
        unread = [socket.create_connection((host, port)) for _ in range(16)]  # that never read what they asked for
        for reader in unread:
            self.addCleanup(reader.close)
            reader.sendall(20 * b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        prometheus.send_signal(signal.SIGSTOP)
        self.assert_serves(served.url)
        prometheus.send_signal(signal.SIGKILL)
        self.assert_serves(served.url)
        with urllib.request.urlopen(served.url + "/metrics", timeout=30) as page:
            self.assertIn(b"baton_requests_started_total", page.read())

    def test_a_collector_that_hangs(self):
        """One that is away, that refuses, and whose name nobody knows: tracing_test.py."""
        collector = Listener()
        self.addCleanup(collector.close)
        served = ServedBaton(OPTIONS.baton, "--demo", "--prefill", "1", "--decode", "1",
                             f"--tracing.endpoint=http://127.0.0.1:{collector.port}")
        self.addCleanup(served.kill)
        self.assert_serves(served.url)
        wait_until(lambda: collector.n_connections() >= 2, 30, 0.1)  # it was tried again
        self.assert_serves(served.url)
        self.assertEqual(served.log().count("traces: 127.0.0.1"), 1)

    def test_a_name_that_nobody_knows_beside_a_router_that_is_there(self):
        authority = Authority(self.folder / "authority", "cluster")
        roles = Roles(self.folder, OPTIONS.baton)
        self.addCleanup(roles.kill)

        def with_certificate(role):
            made = authority.sign(role, f"/CN={role}", f"URI:baton://c/{role}")
            return ("--colocated", "--cluster.tls_cert", made.with_suffix(".pem"), "--cluster.tls_key",
                    made.with_suffix(".key"), "--cluster.tls_ca", authority.folder / "ca.pem")

        router = roles.start("router", "router", *with_certificate("router"))
        roles.start("decode", "decode0", *with_certificate("both"), "--cluster.router",
                    f"nobody.invalid:7001,127.0.0.1:{roles.control}")
        wait_until(lambda: self.is_ready(router), 30)
        wait_until(lambda: "nobody.invalid" in roles.log("decode0"), 30)
        self.assert_serves(router)  # names are asked for once a second meanwhile
        lines = [line for line in roles.log("decode0").splitlines() if "nobody.invalid" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], "the name nobody.invalid of cluster.router is unknown")

    def test_nothing_is_asked_of_the_api_server(self):
        """A pod's environment names the API server, here one that takes connections and hangs."""
        api = Listener()
        self.addCleanup(api.close)
        environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                       "KUBERNETES_SERVICE_PORT": str(api.port), "KUBERNETES_SERVICE_PORT_HTTPS": str(api.port),
                       "KUBERNETES_PORT": f"tcp://127.0.0.1:{api.port}"}
        roles = Roles(self.folder, OPTIONS.baton)
        self.addCleanup(roles.kill)
        router = roles.start("router", "router", "--colocated", environment=environment)
        roles.start("decode", "decode0", "--colocated", environment=environment)
        wait_until(lambda: self.is_ready(router), 30)
        self.assert_serves(router)
        self.assertEqual(api.n_connections(), 0)
        socket.create_connection(("127.0.0.1", api.port)).close()
        self.assertEqual(api.n_connections(), 1)  # it would have been seen

    @staticmethod
    def is_ready(url):
        try:
            return post(url, {"prompt": "x", "max_tokens": 1}).status == 200
        except OSError:
            return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    OPTIONS, rest = parser.parse_known_args()
    running_time.start()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
