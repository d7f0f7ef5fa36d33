"""Kubernetes on this machine: etcd, control plane, DNS, and nodes in boxes of namespaces (node.py). All of it lies in
one folder and ends with stop()."""
import json
import pathlib
import shutil
import subprocess
import time

from certificates import HOST, Certificates
from images import make_image
from node import Node

FOLDER = pathlib.Path(__file__).resolve().parent
DNS = "10.96.0.10"


class ClusterError(Exception):
    pass


class Cluster:
    """programs: the folder of kubectl, etcd, ... (scripts/cluster_test.sh)."""

    Error = ClusterError

    def __init__(self, folder, programs):
        self.folder, self.programs = folder, programs
        self.nodes, self.images = [], []

    def start(self):
        pause = self.folder / "pause"
        subprocess.run(["gcc", "-Os", "-static", FOLDER / "pause.c", "-o", pause], check=True, timeout=60)
        self.images.append(self.folder / "pause.tar")
        make_image(self.images[-1], "localhost/pause:1", pause, "/pause", user="65535:65535")
        self.certificates = Certificates(self.folder / "certificates")
        first = self._box()
        self._start_control_plane(first)
        self._start_node(first)
        self._start_dns(first)

    def _box(self):
        number = len(self.nodes) + 1
        self.nodes.append(Node(f"node{number}", number, self.folder / f"node{number}"))
        return self.nodes[-1]

    def _start_control_plane(self, node):
        of = self.certificates.folder
        node.start("etcd", self.programs / "etcd", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync",
                   "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
                   "--listen-peer-urls=http://127.0.0.1:2380", "--log-level=warn")
        node.start("kube-apiserver", self.programs / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
                   f"--bind-address={HOST}", f"--advertise-address={HOST}", "--service-cluster-ip-range=10.96.0.0/16",
                   "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
                   "--allow-privileged", "--enable-aggregator-routing",
                   "--kubelet-preferred-address-types=InternalIP", f"--client-ca-file={of}/ca.pem",
                   f"--tls-cert-file={of}/apiserver.pem", f"--tls-private-key-file={of}/apiserver.key",
                   f"--kubelet-certificate-authority={of}/ca.pem", f"--kubelet-client-certificate={of}/admin.pem",
                   f"--kubelet-client-key={of}/admin.key",
                   "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                   f"--service-account-key-file={of}/accounts.pub",
                   f"--service-account-signing-key-file={of}/accounts.key",
                   f"--requestheader-client-ca-file={of}/ca.pem", "--requestheader-allowed-names=front-proxy",
                   "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
                   "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                   f"--proxy-client-cert-file={of}/front-proxy.pem", f"--proxy-client-key-file={of}/front-proxy.key",
                   f"--cert-dir={self.folder}/run")
        self.admin = self.certificates.kubeconfig("admin")
        self.wait("the API server", lambda: self.kubectl("get", "--raw=/readyz") == "ok")
        node.start("kube-controller-manager", self.programs / "kube-controller-manager",
                   f"--kubeconfig={self.certificates.kubeconfig('controllers')}", "--use-service-account-credentials",
                   "--leader-elect=false", f"--service-account-private-key-file={of}/accounts.key",
                   f"--root-ca-file={of}/ca.pem", "--horizontal-pod-autoscaler-sync-period=3s",
                   "--horizontal-pod-autoscaler-downscale-stabilization=5s", "--node-monitor-grace-period=15s",
                   f"--cert-dir={self.folder}/run")
        node.start("kube-scheduler", self.programs / "kube-scheduler", "--leader-elect=false",
                   f"--kubeconfig={self.certificates.kubeconfig('scheduler')}", f"--cert-dir={self.folder}/run")

    def _start_node(self, node):
        node.start_containerd()
        self.wait("containerd", lambda: node.run("ctr", "version"))
        for image in self.images:
            node.import_image(image)
        certificate = self.certificates.sign(node.name, f"/O=system:nodes/CN=system:node:{node.name}",
                                             f"IP:{node.address},DNS:{node.name}")
        node.start_kubelet(self.programs, self.certificates.kubeconfig(node.name),
                           self.certificates.folder / "ca.pem", certificate)
        node.start_proxy(self.programs, self.certificates.kubeconfig("proxy"))
        self.wait(f"{node.name} to be ready", lambda: self.is_ready(node))

    def _start_dns(self, node):
        corefile = self.folder / "Corefile"
        corefile.write_text(".:53 {\n  errors\n  cache 2\n  kubernetes cluster.local in-addr.arpa {\n"
                            f"    kubeconfig {self.admin} test\n    ttl 2\n  }}\n}}\n")
        node.start("coredns", self.programs / "coredns", f"-conf={corefile}")
        ports = [{"name": "dns", "protocol": "UDP", "port": 53}, {"name": "dns-tcp", "protocol": "TCP", "port": 53}]
        self.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "dns", "namespace": "kube-system"},
                    "spec": {"clusterIP": DNS, "ports": ports}},
                   {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                    "metadata": {"name": "dns-1", "namespace": "kube-system",
                                 "labels": {"kubernetes.io/service-name": "dns"}},
                    "endpoints": [{"addresses": [HOST]}], "ports": ports})

    def add_node(self):
        """A further node: a box on a link of its own to the first one."""
        first, node = self.nodes[0], self._box()
        link = f"to-{node.name}"
        subprocess.run(["nsenter", "-t", str(first.box), "-n", "ip", "link", "add", link, "type", "veth",
                        "peer", "name", "up0", "netns", str(node.box)], check=True, timeout=10)
        first.run("ip", "link", "set", link, "master", "node0", "up")
        node.run("ip", "link", "set", "up0", "master", "node0", "up")
        for one, other in ((first, node), (node, first)):
            one.run("ip", "route", "add", other.pods, "via", other.address)
        self._start_node(node)
        return node

    def remove_node(self, node):
        """Of a node that was killed, or kills it."""
        node.kill()
        self.nodes.remove(node)
        self.kubectl("delete", "node", node.name)

    def is_ready(self, node):
        told = json.loads(self.kubectl("get", "node", node.name, "-o", "json"))
        return any(each["type"] == "Ready" and each["status"] == "True" for each in told["status"]["conditions"])

    def program(self, *command, timeout=60, text=None):
        """Runs a client of the cluster in the first node; returns what it prints."""
        run = subprocess.run(self.nodes[0].command(*command), capture_output=True, text=True, timeout=timeout,
                             input=text)
        if run.returncode != 0:
            raise ClusterError(f"{' '.join(map(str, command))}: {run.stdout}{run.stderr}")
        return run.stdout

    def kubectl(self, *arguments, timeout=60, text=None):
        return self.program(self.programs / "kubectl", f"--kubeconfig={self.admin}", *arguments, timeout=timeout,
                            text=text)

    def apply(self, *objects):
        self.kubectl("apply", "--server-side", "-f", "-",
                     text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def wait(self, what, condition, seconds=60):
        """Waits until the condition holds; ClusterError within it means not yet."""
        end, why = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                if condition():
                    return
            except (ClusterError, subprocess.CalledProcessError) as error:
                why = str(error)
            for node in self.nodes:
                node.check()
            time.sleep(0.3)
        raise ClusterError(f"{what}: not within {seconds} s. {why}")

    def stop(self):
        for node in reversed(self.nodes):
            try:
                node.kill()
            except subprocess.TimeoutExpired as late:
                print(f"{node.name} does not end: {late}", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
