"""The light mode's cluster: an API server and its store, etcd, on ports of the loopback that the system picks. Nothing
starts pods there; what is refused and kept is what a whole cluster refuses and keeps. Ends with stop()."""
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from certificates import Certificates

READY_SECONDS = 120  # of a slow machine; here it takes four


class Refused(Exception):
    """A client's command failed; the text is what it and the server said."""


def free_ports(n):
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [each.getsockname()[1] for each in holders]
    for each in holders:
        each.close()
    return ports


class ApiServer:
    """programs: the folder of etcd, kube-apiserver and kubectl (scripts/cluster_test.sh)."""

    def __init__(self, programs):
        self.programs = programs
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="api-server-"))
        self.running = []
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        store, peer, port = free_ports(3)
        certificates = Certificates(self.folder / "certificates")
        of = certificates.folder
        self.run("etcd", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
                 f"--listen-client-urls=http://127.0.0.1:{store}", f"--advertise-client-urls=http://127.0.0.1:{store}",
                 f"--listen-peer-urls=http://127.0.0.1:{peer}",
                 f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                 f"--initial-cluster=default=http://127.0.0.1:{peer}")
        self.run("kube-apiserver", f"--etcd-servers=http://127.0.0.1:{store}", "--bind-address=127.0.0.1",
                 f"--secure-port={port}", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
                 "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
                 "--enable-admission-plugins=NodeRestriction", f"--client-ca-file={of}/ca.pem",
                 f"--tls-cert-file={of}/apiserver.pem", f"--tls-private-key-file={of}/apiserver.key",
                 "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                 f"--service-account-key-file={of}/accounts.pub",
                 f"--service-account-signing-key-file={of}/accounts.key", f"--cert-dir={self.folder}/run")
        self.admin = certificates.kubeconfig("admin", f"https://127.0.0.1:{port}")
        self._wait_until_ready()

    def _wait_until_ready(self):
        end, why = time.monotonic() + READY_SECONDS, ""
        while time.monotonic() < end:
            for name, program in self.running:
                if program.poll() is not None:
                    raise RuntimeError(f"{name} has ended: {(self.folder / f'{name}.log').read_text()[-3000:]}")
            try:
                if self.kubectl("get", "--raw=/readyz") == "ok":
                    return
            except Refused as refusal:
                why = str(refusal)
            time.sleep(0.3)
        raise RuntimeError(f"the API server is not ready after {READY_SECONDS} s. {why}")

    def run(self, name, *arguments):
        """A program in the background; its lines go to NAME.log."""
        with open(self.folder / f"{name}.log", "wb") as log:
            self.running.append((name, subprocess.Popen([self.programs / name, *arguments], stdin=subprocess.DEVNULL,
                                                        stdout=log, stderr=log)))

    def program(self, *command, text=None, timeout=120):
        """Runs a client to its end; returns what it prints."""
        run = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=timeout, input=text)
        if run.returncode != 0:
            raise Refused(f"{' '.join(map(str, command[:4]))} ...: {run.stdout[-500:]}{run.stderr}")
        return run.stdout

    def kubectl(self, *arguments, text=None):
        return self.program(self.programs / "kubectl", f"--kubeconfig={self.admin}", *arguments, text=text)

    def helm(self, helm, *arguments, values):
        return self.program(helm, f"--kubeconfig={self.admin}", *arguments, "-f", "-", text=json.dumps(values))

    def apply(self, objects, *further):
        """As `kubectl apply --server-side`, strictly: a field that the server does not know is refused."""
        return self.kubectl("apply", "--server-side", "--validate=strict", *further, "-f", "-",
                            text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def objects(self):
        """Names of all objects there are, but for what the server itself writes while it runs."""
        names = set()
        for scope in ("true", "false"):
            kinds = self.kubectl("api-resources", "--verbs=list", f"--namespaced={scope}", "-o", "name").split()
            kinds = [kind for kind in kinds if kind.split(".")[0] not in ("events", "leases", "componentstatuses")]
            told = self.kubectl("get", ",".join(kinds), "-A", "--ignore-not-found", "-o", "jsonpath={range .items[*]}"
                                "{.kind}{' '}{.metadata.namespace}{'/'}{.metadata.name}{'\\n'}{end}")
            names |= set(told.splitlines())
        return names

    def stop(self):
        for _, program in reversed(self.running):
            program.kill()
            program.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)
