"""The Helm chart on a real Kubernetes (cluster.py): what users and operators do, under load. One cluster and one
release for all cases; each leaves the release as it found it. scripts/cluster_test.sh has the programs."""
import argparse
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

from clients import Clients
from cluster import Cluster, ClusterError
from images import make_image
from interrupts import heed_sigterm
from metrics import Metrics
from release import CHART, NAMESPACE, RELEASE, ROOT, VALUES, changed

options = None
cluster = None


def helm(*arguments, values=None, timeout=120):
    command = [options.helm, f"--kubeconfig={cluster.admin}", *arguments]
    return cluster.program(*command, *(("-f", "-") if values else ()), timeout=timeout,
                           text=json.dumps(values) if values else None)


def make_secrets(namespace):
    """The certificates of roles, by an authority of Baton's own (docs/SECURITY.md)."""
    certificates = cluster.certificates
    for role in ("router", "prefill", "decode"):
        path = certificates.sign(f"baton-{role}", f"/CN={role}", f"URI:baton://{namespace}-cluster/{role}")
        cluster.kubectl("-n", namespace, "create", "secret", "generic", f"tls-{role}", "--type=kubernetes.io/tls",
                        f"--from-file=tls.crt={path}.pem", f"--from-file=tls.key={path}.key",
                        f"--from-file=ca.crt={certificates.folder}/ca.pem")


def make_namespace(namespace):
    """With the strictest rules of Pod Security."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace",
                   "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    cluster.wait("the service account", lambda: cluster.get("-n", namespace, "serviceaccount", "default"))
    make_secrets(namespace)


def state_of(namespace):
    """What a reader of a failure wants to see."""
    told = [cluster.kubectl("-n", namespace, "get", "pods", "-o", "wide")]
    told.append(cluster.kubectl("-n", namespace, "get", "events", "--sort-by=.lastTimestamp")[-2000:])
    for role in ("router", "prefill", "decode"):
        try:
            told.append(cluster.kubectl("-n", namespace, "logs", "--tail=15", "-l",
                                        f"app.kubernetes.io/component={role}"))
        except ClusterError as error:
            told.append(str(error))
    return "\n".join(told)


def install(namespace, values):
    values = {**values, "cluster": {**values["cluster"], "name": f"{namespace}-cluster"}}
    try:
        helm("upgrade", "--install", RELEASE, CHART, "-n", namespace, "--wait", "--timeout=60s", values=values,
             timeout=180)
    except ClusterError as error:
        raise ClusterError(f"{error}\n{state_of(namespace)}") from None


def service_url(namespace):
    return "http://" + cluster.get("-n", namespace, "service", f"{RELEASE}-baton")["spec"]["clusterIP"]


def pods(role, namespace=NAMESPACE):
    told = cluster.get("-n", namespace, "pods", "-l", f"app.kubernetes.io/component={role}")
    return [pod for pod in told["items"] if "deletionTimestamp" not in pod["metadata"]]


def restart(kind, role):
    cluster.kubectl("-n", NAMESPACE, "rollout", "restart", f"{kind}/{RELEASE}-baton-{role}")
    settled(kind, role)


def settled(kind, role):
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"{kind}/{RELEASE}-baton-{role}", "--timeout=150s",
                    timeout=160)


def scale(role, replicas):
    cluster.kubectl("-n", NAMESPACE, "scale", f"statefulset/{RELEASE}-baton-{role}", f"--replicas={replicas}")
    cluster.wait(f"{replicas} workers for {role}", lambda: len(pods(role)) == replicas, seconds=150)
    settled("statefulset", role)


def counted(series):
    """The sum of a series over all routers."""
    pages = [cluster.kubectl("get", "--raw",
                             f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9464/proxy/metrics")
             for pod in pods("router")]
    return sum(float(line.split()[-1]) for page in pages for line in page.splitlines()
               if line.startswith(f"{series}{{"))


def failovers():
    """Attempts that broke and were made anew."""
    return counted("baton_failovers_total")


class Load(Clients):
    """Clients in the first node, and the `failovers` of their time."""

    def __init__(self, n_clients=8):
        self.n_clients = n_clients
        super().__init__(["nsenter", "-t", str(cluster.nodes[0].box), "-n"], service_url(NAMESPACE), n_clients)

    def __enter__(self):
        super().__enter__()
        self.failovers = -failovers()
        return self

    def __exit__(self, *_):
        super().__exit__()
        self.failovers += failovers()
        kinds = ("right", "failed", "wrong", "refused", "unanswered")
        told = ", ".join(f"{self.result[kind]} {kind}" for kind in kinds)
        print(f"    requests: {told} in {self.seconds:.0f} s, {self.failovers:.0f} failovers", flush=True)


class Chart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_namespace(NAMESPACE)
        install(NAMESPACE, VALUES)

    def assertAllRight(self, load, at_least):
        self.assertEqual([load.result[each] for each in ("failed", "wrong", "refused", "unanswered")], [0, 0, 0, 0],
                         load.result["why"])
        self.assertGreaterEqual(load.result["right"], at_least)

    def test_a_chat_through_the_service(self):
        told = cluster.program("curl", "-sf", "--max-time", "30", f"{service_url(NAMESPACE)}/v1/chat/completions",
                               "-H", "Content-Type: application/json", "-d", json.dumps(
                                   {"model": "demo", "max_tokens": 8, "temperature": 0,
                                    "messages": [{"role": "user", "content": "What is 2 + 3?"}]}))
        self.assertIn("5", json.loads(told)["choices"][0]["message"]["content"])

    def test_every_pod_is_restricted(self):
        """Kubernetes has let them in under Pod Security `restricted`; here what that does not ask for."""
        n_pods = 0
        for role in ("router", "prefill", "decode"):
            for pod in pods(role):
                n_pods += 1
                self.assertFalse(pod["spec"]["automountServiceAccountToken"])
                for container in pod["spec"]["containers"]:
                    self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
                    status = pod["status"]["containerStatuses"][0]
                    self.assertEqual(status["restartCount"], 0)
                pid = self.process_of(pod)
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                self.assertIn("CapEff:\t0000000000000000", status)
                self.assertIn("Seccomp:\t2", status)
                self.assertIn("Uid:\t10001", status)
        self.assertEqual(n_pods, 4)

    def process_of(self, pod):
        """The process id, here, of a pod's program."""
        uid = pod["metadata"]["uid"]
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if uid in (process / "cgroup").read_text() and b"/usr/bin/baton" in (process / "cmdline").read_bytes():
                    return process.name
            except OSError:
                pass
        self.fail(f"no process of {pod['metadata']['name']}")

    def test_decode_workers_come_and_go_under_load(self):
        with Load() as load:
            self.repeat_until_answered(lambda: (scale("decode", 3), time.sleep(3), scale("decode", 1)))
        self.assertAllRight(load, max(100, options.requests))

    def test_workers_restart_one_after_the_other_under_load(self):
        def restart_workers():
            restart("statefulset", "prefill")
            scale("decode", 2)
            restart("statefulset", "decode")
            scale("decode", 1)

        with Load() as load:
            self.repeat_until_answered(restart_workers)
        self.assertAllRight(load, max(200, options.requests))

    def repeat_until_answered(self, act):
        """Acts once, and again until --requests have been answered beside it."""
        n, begun = 0, counted("vllm:request_success_total")
        answered = begun
        while n == 0 or answered - begun < options.requests:
            act()
            before, answered = answered, counted("vllm:request_success_total")
            self.assertGreater(answered, before)
            n += 1
        print(f"    {n} times", flush=True)

    def test_routers_come_and_go_under_load(self):
        """Those that are told to go end their streams first; of one that is killed only its own streams break."""
        install(NAMESPACE, changed(VALUES, router={"replicas": 2}))
        try:
            with Load() as load:
                restart("deployment", "router")
            self.assertAllRight(load, 20)
            with Load() as load:
                self.kill(pods("router")[0])
                settled("deployment", "router")
            self.assertEqual(load.result["wrong"], 0)
            # Connections are refused until kube-proxy has heard of it.
            self.assertLessEqual(load.result["failed"], load.n_clients, load.result["why"])
            self.assertLessEqual(load.result["unanswered"], load.n_clients, load.result["why"])
            self.assertGreaterEqual(load.result["right"], 20)
        finally:
            install(NAMESPACE, VALUES)

    def test_killed_pods_lose_no_request(self):
        scale("decode", 2)
        with Load() as load:
            for role in ("prefill", "decode"):
                for pod in pods(role):
                    self.kill(pod)
                    settled("statefulset", role)
        scale("decode", 1)
        self.assertAllRight(load, 100)
        self.assertGreater(load.failovers, 0)

    def kill(self, pod):
        """Before a deletion by force kubelet gives two seconds, in which a pod that drains ends its work."""
        os.kill(int(self.process_of(pod)), signal.SIGKILL)
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")

    def test_a_killed_node_loses_no_request(self):
        node = cluster.add_node()
        try:
            scale("decode", 2)
            scale("prefill", 3)
            cluster.wait("workers on the second node", lambda: self.roles_on(node) == {"prefill", "decode"})
            with Load() as load:
                node.kill()
                cluster.wait("Kubernetes to notice", lambda: not cluster.is_ready(node))
                # An operator says so that the machine is off and its pods may run elsewhere.
                cluster.kubectl("taint", "node", node.name, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
                cluster.wait("its pods to move", lambda: not self.roles_on(node))
                settled("statefulset", "prefill")
                settled("statefulset", "decode")
        finally:
            cluster.remove_node(node)
            scale("decode", 1)
            scale("prefill", 2)
        self.assertAllRight(load, 100)
        self.assertGreater(load.failovers, 0)

    def roles_on(self, node):
        return {role for role in ("router", "prefill", "decode") for pod in pods(role)
                if pod["spec"].get("nodeName") == node.name}

    def test_a_metric_of_prometheus_scales_decode_workers(self):
        """HPA by prometheus-adapter: one worker, three under load, one after it."""
        def replicas():
            return cluster.get("-n", NAMESPACE, "statefulset", f"{RELEASE}-baton-decode")["spec"]["replicas"]

        scaling = {"kind": "hpa", "minReplicas": 1, "maxReplicas": 3, "target": 2, "scaleDownSeconds": 5}
        with Metrics(cluster, options.adapter, NAMESPACE, "decode"):
            install(NAMESPACE, changed(VALUES, decode={"autoscaling": scaling}))
            try:
                with Load(n_clients=12) as load:
                    cluster.wait("three decode workers", lambda: replicas() == 3, seconds=90)
                    settled("statefulset", "decode")
                cluster.wait("one decode worker again", lambda: replicas() == 1, seconds=120)
            finally:
                install(NAMESPACE, VALUES)
        self.assertAllRight(load, 100)

    def test_an_eviction_beyond_the_budget_is_refused(self):
        def evict(pod):
            name = pod["metadata"]["name"]
            cluster.kubectl("create", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", "-f", "-",
                            text=json.dumps({"apiVersion": "policy/v1", "kind": "Eviction",
                                             "metadata": {"name": name, "namespace": NAMESPACE}}))

        first, second = pods("prefill")
        evict(first)
        with self.assertRaisesRegex(ClusterError, "disruption budget"):
            evict(second)
        settled("statefulset", "prefill")

    def test_upgrade_and_rollback(self):
        def log_level():
            return cluster.get("-n", NAMESPACE, "configmap", f"{RELEASE}-baton")["data"]["baton.yaml"]

        before = log_level()
        install(NAMESPACE, {**VALUES, "config": {**VALUES["config"], "log": {"level": "warn"}}})
        self.assertNotEqual(before, log_level())
        self.test_a_chat_through_the_service()
        helm("rollback", RELEASE, "-n", NAMESPACE, "--wait", "--timeout=150s", timeout=180)
        self.assertEqual(before, log_level())
        self.test_a_chat_through_the_service()

    def test_uninstall_leaves_nothing(self):
        make_namespace("short")
        install("short", changed(VALUES, prefill={"replicas": 1}))
        helm("uninstall", RELEASE, "-n", "short", "--wait", "--timeout=120s", timeout=150)
        kinds = ("deployments,statefulsets,pods,services,configmaps,secrets,poddisruptionbudgets,networkpolicies,"
                 "serviceaccounts")
        cluster.wait("all pods to end", lambda: not cluster.get("-n", "short", "pods")["items"])
        left = [f"{each['kind']}/{each['metadata']['name']}" for each in cluster.get("-n", "short", kinds)["items"]]
        # The namespace has what was there before the release, and no more.
        self.assertEqual(sorted(left), sorted(["ConfigMap/kube-root-ca.crt", "ServiceAccount/default", *(
            f"Secret/tls-{role}" for role in ("router", "prefill", "decode"))]))
        cluster.kubectl("delete", "namespace", "short", "--wait=false")


def main():
    global options, cluster
    heed_sigterm()
    parser = argparse.ArgumentParser()
    for name in ("programs", "helm", "adapter", "baton"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=0, help="that are answered beside changes of workers")
    parser.add_argument("--slice", action="store_true", help="all but those of SLOW")
    options, arguments = parser.parse_known_args()
    if options.slice:
        arguments += [f"Chart.{name}" for name in unittest.TestLoader().getTestCaseNames(Chart) if name not in SLOW]
    begun = time.monotonic()
    cluster = Cluster(pathlib.Path(tempfile.mkdtemp(prefix="cluster-")), options.programs)
    try:
        image = cluster.folder / "baton.tar"
        make_image(image, "localhost/baton:1", options.baton, "/usr/bin/baton",
                   {"/usr/share/baton/models/demo": ROOT / "models/demo", **LIBRARIES}, user="10001:10001")
        cluster.images.append(image)
        cluster.start()
        print(f"a cluster of one node after {time.monotonic() - begun:.0f} s", flush=True)
        unittest.main(argv=[sys.argv[0], "-v", *arguments])
    finally:
        cluster.stop()


# A third of the time of all cases: Kubernetes waits before it takes a node for lost, and before it scales.
SLOW = {"test_a_killed_node_loses_no_request", "test_a_metric_of_prometheus_scales_decode_workers"}

# Baton's libraries open these by name: UCX its transports, gRPC a list of authorities.
LIBRARIES = {folder: folder for folder in ("/usr/lib/x86_64-linux-gnu/ucx", "/usr/share/grpc")}

if __name__ == "__main__":
    main()
