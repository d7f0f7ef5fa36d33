"""The Helm chart against a real API server without nodes (api_server.py): what it refuses, keeps and deletes.
scripts/cluster_test.sh has the programs."""
import argparse
import concurrent.futures
import json
import pathlib
import sys
import time
import unittest

import yaml

from api_server import ApiServer, Refused
from interrupts import heed_sigterm
from release import CHART, NAMESPACE, RELEASE, ROOT, VALUES, changed

sys.path.append(str(ROOT / "tests/chart"))
from rendering import BASE, Rendering, helm_template, nested
from value_cases import CASES

PULL = {"model": {"path": "org/m", "hfCache": "/models/hub", "pull": {"enabled": True}, "volume": {"claim": "models"}}}
options = None
server = None


def rendered(values):
    return Rendering(helm_template(options.helm, values, namespace=NAMESPACE))


def make_namespace(name):
    """With the strictest rules of Pod Security, and the account that a controller would make."""
    server.apply([
        {"apiVersion": "v1", "kind": "Namespace",
         "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}])


def pods_of(rendering):
    """The pods that controllers would make."""
    for each in rendering.objects:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            spec = json.loads(json.dumps(each["spec"]["template"]["spec"]))
            spec["serviceAccountName"] = "default"  # the release's own is not there
            yield {"apiVersion": "v1", "kind": "Pod", "spec": spec,
                   "metadata": {"name": each["metadata"]["name"], "namespace": NAMESPACE,
                                "labels": each["spec"]["template"]["metadata"]["labels"]}}


class Light(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server.kubectl("apply", "--server-side", "-f", str(options.schemas / "crds"))
        server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        make_namespace(NAMESPACE)

    def assertRefused(self, words, objects):
        with self.assertRaises(Refused) as refusal:
            server.apply(objects, "--dry-run=server")
        for word in words:
            self.assertIn(word, str(refusal.exception))

    def test_install_upgrade_rollback_and_uninstall_which_leaves_nothing(self):
        def settings():
            return json.loads(server.kubectl("-n", NAMESPACE, "get", "configmap", f"{RELEASE}-baton", "-o",
                                             "json"))["data"]["baton.yaml"]

        def helm(*arguments, values=VALUES):
            return server.helm(options.helm, *arguments, "-n", NAMESPACE, values=values)

        before = server.objects()
        helm("install", RELEASE, CHART)
        there = server.objects() - before
        manifest = server.program(options.helm, f"--kubeconfig={server.admin}", "-n", NAMESPACE, "get", "manifest",
                                  RELEASE)
        objects = [each for each in yaml.load_all(manifest, yaml.CSafeLoader) if each]
        wanted = {f"{each['kind']} {NAMESPACE}/{each['metadata']['name']}" for each in objects}
        self.assertGreater(len(wanted), 10)
        self.assertEqual(wanted - there, set())
        first = settings()
        helm("upgrade", RELEASE, CHART, values={**VALUES, "config": {"log": {"level": "warn"}}})
        self.assertIn("warn", settings())
        self.assertNotEqual(first, settings())
        server.program(options.helm, f"--kubeconfig={server.admin}", "-n", NAMESPACE, "rollback", RELEASE, "1")
        self.assertEqual(first, settings())
        server.program(options.helm, f"--kubeconfig={server.admin}", "-n", NAMESPACE, "uninstall", RELEASE, "--wait",
                       "--timeout=60s")
        self.assertEqual(server.objects() - before, set())

    def test_the_pods_of_every_role_are_admitted_as_restricted(self):
        for values in (VALUES, changed(VALUES, cluster={"colocated": True}), {**VALUES, **PULL}):
            pods = list(pods_of(rendered(values)))
            self.assertGreaterEqual(len(pods), 2)
            server.apply(pods, "--dry-run=server")

    def test_pods_that_leave_restricted_are_refused_as_the_docs_say(self):
        """Without this the test before could pass with nothing enforced."""
        for change in ({"rdma": {"ipcLock": True}}, {"weightCache": {"hostPath": "/var/cache/b"}}):
            pods = [pod for pod in pods_of(rendered(changed(VALUES, decode=change)))
                    if pod["metadata"]["name"].endswith("decode")]
            self.assertRefused(["violates PodSecurity", "restricted"], pods)

    def test_the_server_takes_the_objects_of_every_value(self):
        """All renderings of the chart's tests; those of a kind and name that differ are all tried."""
        every = [nested({**BASE, **case.others, case.path: case.value}) for case in CASES]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            renderings = list(pool.map(rendered, every))
        objects = {json.dumps(each, sort_keys=True): each for rendering in renderings for each in rendering.objects}
        kinds = {each["kind"] for each in objects.values()}
        self.assertLessEqual({"Deployment", "StatefulSet", "PodMonitor", "PrometheusRule", "ScaledObject",
                              "InferencePool", "Certificate", "HorizontalPodAutoscaler"}, kinds)
        server.kubectl("apply", "--server-side", "--validate=strict", "--dry-run=server", "-n", NAMESPACE, "-f", "-",
                       text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects.values())}))
        print(f"    {len(objects)} objects of {len(every)} renderings, {len(kinds)} kinds", flush=True)

    def test_wrong_objects_are_refused_by_the_field(self):
        rendering = rendered(nested({
            **BASE, "metrics.podMonitor.enabled": True, "metrics.apiKey.secret": "k", "metrics.rules.enabled": True,
            "inferencePool.enabled": True, "inferencePool.endpointPicker.name": "picker"}))

        def wrong(kind, change):
            each = json.loads(json.dumps(rendering.all(kind)[0]))
            change(each["spec"])
            each["metadata"]["namespace"] = NAMESPACE
            return [each]

        self.assertRefused(["replicas"], wrong("Deployment", lambda spec: spec.update(replicas="many")))
        self.assertRefused(["replica"], wrong("Deployment", lambda spec: spec.update(replica=1)))
        self.assertRefused(["interval"], wrong(
            "PodMonitor", lambda spec: spec["podMetricsEndpoints"][0].update(interval="often")))
        self.assertRefused(["alerts"], wrong("PrometheusRule", lambda spec: spec["groups"][0].update(alerts=[])))
        self.assertRefused(["targetPorts"], wrong("InferencePool", lambda spec: spec.pop("targetPorts")))

    def test_the_plain_manifests_are_taken(self):
        make_namespace("baton")
        told = server.kubectl("apply", "--server-side", "--validate=strict", "--dry-run=server", "-k",
                              str(ROOT / "deploy/manifests"))
        self.assertEqual(told.count("serverside-applied (server dry run)"), len(told.splitlines()))
        self.assertGreater(len(told.splitlines()), 10)


def main():
    global options, server
    parser = argparse.ArgumentParser()
    for name in ("programs", "helm", "schemas"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    options, arguments = parser.parse_known_args()
    heed_sigterm()
    begun = time.monotonic()
    server = ApiServer(options.programs)
    try:
        print(f"an API server after {time.monotonic() - begun:.0f} s", flush=True)
        unittest.main(argv=[sys.argv[0], "-v", *arguments])
    finally:
        server.stop()


if __name__ == "__main__":
    main()
