"""The rendered processes on this machine: the flags and settings of the chart's pods, with files where the pods have
them, serve the demo model. What Kubernetes does itself (DNS, Services, policies) is no part of it."""
import http.client
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from rendering import BASE, Rendering, helm_template, nested

options = None
ADDRESS = {"router": "127.0.0.1", "prefill": "127.0.0.2", "decode": "127.0.0.3"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return probe.getsockname()[1]


def get(host, port, path, key=None, body=None):
    """Returns (status, text); status 0: no connection."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        connection.request("POST" if body else "GET", path, body and json.dumps(body),
                           {**headers, **({"Content-Type": "application/json"} if body else {})})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError as error:
        return 0, str(error)
    finally:
        connection.close()


class Served(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.processes = {}
        self.addCleanup(self.kill)
        self.http, self.metrics, self.control, self.kv = (free_port() for _ in range(4))
        values = {**BASE, "server.port": self.http, "metrics.port": self.metrics, "router.controlPort": self.control,
                  "kvtransfer.firstPort": min(self.kv, 65534), "prefill.shutdownSeconds": 20,
                  "decode.shutdownSeconds": 20, "router.shutdownSeconds": 20,
                  "config": {"prefill": {"threads": 1}, "decode": {"threads": 1}}}
        self.rendering = Rendering(helm_template(options.helm, nested(values)))
        self.worker_ports = {role: free_port() for role in ("prefill", "decode")}  # one machine, so not one port
        self.make_files()

    def kill(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def here(self, text):
        """The paths and the address of the pods as those of this test."""
        return (text.replace("/etc/baton", str(self.folder / "etc")).replace("/cache/", f"{self.folder}/cache/")
                .replace("r-baton-routers:", "127.0.0.1:"))

    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)

    def make_files(self):
        """What Secrets and ConfigMap bring into the pods; of each role a folder, as each has its own certificate."""
        self.keys = {}
        lines = []
        for name, scopes in (("app", "inference"), ("prometheus", "metrics")):
            run = subprocess.run([options.baton, "key", name, "--scopes", scopes], capture_output=True, text=True,
                                 check=True, timeout=60)
            self.keys[name] = next(word for word in run.stderr.split() if word.startswith("bk_"))
            lines.append(run.stdout)
        ca, new = self.folder / "ca.pem", self.folder / "new"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self.openssl("req", "-x509", *curve, "-days", 30, "-subj", "/CN=authority", "-keyout", self.folder / "ca.key",
                     "-out", ca)
        for role in self.rendering.roles():
            etc = self.folder / role / "etc"
            for name in ("config", "cluster-key", "cluster-tls", "api-keys"):
                (etc / name).mkdir(parents=True)
            (self.folder / role / "cache").mkdir()
            (etc / "cluster-key/key").write_text("5a" * 32)
            (etc / "api-keys/keys").write_text("".join(lines))
            tls = etc / "cluster-tls"
            self.openssl("req", *curve, "-subj", f"/CN={role}", "-keyout", tls / "tls.key", "-out", new)
            (self.folder / "names").write_text(f"subjectAltName=URI:baton://r-baton/{role}")
            self.openssl("x509", "-req", "-in", new, "-CA", ca, "-CAkey", self.folder / "ca.key", "-CAcreateserial",
                         "-days", 30, "-extfile", self.folder / "names", "-out", tls / "tls.crt")
            shutil.copy(ca, tls / "ca.crt")
            for path in etc.rglob("*"):
                if path.is_file():
                    path.chmod(0o440)  # the volumes' defaultMode
            settings = self.rendering.settings_text()
            (etc / "config/baton.yaml").write_text(self.of_role(role, settings))

    def of_role(self, role, text):
        return self.here(text).replace(f"{self.folder}/etc", f"{self.folder}/{role}/etc").replace(
            f"{self.folder}/cache", f"{self.folder}/{role}/cache")

    def start(self, role):
        arguments = [self.of_role(role, each).replace("$(POD_IP)", ADDRESS[role]).replace("$(POD_NAME)", f"{role}-0")
                     for each in self.rendering.args(role)]
        if role != "router":
            arguments.append(f"--cluster.metrics_port={self.worker_ports[role]}")
        log = open(self.folder / f"{role}.log", "w")
        self.addCleanup(log.close)
        self.processes[role] = subprocess.Popen([options.baton, *arguments], stderr=log, stdout=log)

    def ask(self, role, path, key=None):
        """As a probe or Prometheus asks a pod."""
        port = self.metrics if role == "router" else self.worker_ports[role]
        return get(ADDRESS[role], port, path, key)[0]

    def await_status(self, role, path, status):
        end = time.monotonic() + 60
        while self.ask(role, path) != status:
            logs = "".join((self.folder / f"{each}.log").read_text() for each in self.processes)
            self.assertLess(time.monotonic(), end, f"{role} {path} is {self.ask(role, path)}, not {status}:\n{logs}")
            self.assertIsNone(self.processes[role].poll(), f"{role} ended:\n{logs}")
            time.sleep(0.05)

    def test_the_rendered_processes_serve_with_keys_and_drain(self):
        self.start("router")
        self.await_status("router", "/livez", 200)
        self.assertEqual(self.ask("router", "/readyz"), 503)  # alive and not ready: no worker yet
        for role in ("prefill", "decode"):
            self.start(role)
        for role in ("prefill", "decode", "router"):
            self.await_status(role, "/readyz", 200)
            self.assertEqual(self.ask(role, "/livez"), 200)

        body = {"model": "demo", "prompt": "The harbour", "max_tokens": 8, "ignore_eos": True}
        self.assertEqual(get("127.0.0.1", self.http, "/v1/completions", None, body)[0], 401)
        status, text = get("127.0.0.1", self.http, "/v1/completions", self.keys["app"], body)
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text)["usage"]["completion_tokens"], 8)

        # Prometheus: each pod's port of metrics, by a key of the scope, and by no other.
        self.assertEqual(get("127.0.0.1", self.metrics, "/metrics", self.keys["app"])[0], 403)
        status, text = get("127.0.0.1", self.metrics, "/metrics", self.keys["prometheus"])
        self.assertEqual(status, 200)
        self.assertIn("baton_cluster_certificate_expiry_timestamp_seconds", text)
        for role in ("prefill", "decode"):
            scaling = self.rendering_default_metric(role)
            self.assertEqual(self.ask(role, "/metrics"), 401)
            status, text = get(ADDRESS[role], self.worker_ports[role], "/metrics", self.keys["prometheus"])
            self.assertEqual(status, 200)
            self.assertIn(f"\n{scaling}{{", text)  # what HPA and KEDA ask for is there
            self.assertIn(f'worker="{role}-0"', text)

        for role in ("prefill", "decode", "router"):
            self.processes[role].send_signal(signal.SIGTERM)
            self.assertEqual(self.processes[role].wait(timeout=20), 0, (self.folder / f"{role}.log").read_text())

    def rendering_default_metric(self, role):
        values = nested({**BASE, f"{role}.autoscaling.kind": "hpa"})
        scaler = Rendering(helm_template(options.helm, values)).one("HorizontalPodAutoscaler")
        return scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
