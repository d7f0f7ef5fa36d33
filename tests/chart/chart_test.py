"""Tests of the Helm chart; scripts/chart_test.sh starts them with helm, kubeconform and schemas."""
import argparse
import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "server/pull"))
import manifests
import serve_test
from hub_server import Hub
from refusal_cases import REFUSED
from rendering import BASE, CHART, Refused, Rendering, helm_template, nested
from value_cases import CASES

options = None
# Objects that BASE or the case's other values have already.
HOLD_BEFORE = {"model.demo", "model.pull.enabled", "cluster.tls.certManager.enabled", "metrics.podMonitor.enabled",
               "inferencePool.enabled"}
SAMPLE_RULES = {"groups": [{"name": "sample", "rules": [{"alert": "Sample", "expr": "up == 0"}]}]}


class Rendered(unittest.TestCase):
    """A rendering per value, then all of them through kubeconform and `baton config`."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.chart = cls.folder / "baton"
        shutil.copytree(CHART, cls.chart)  # with what the links in it lead to
        (cls.chart / "files/grafana/sample_board.json").write_text('{"title": "sample"}\n')
        (cls.chart / "files/prometheus/sample.yaml").write_text(json.dumps(SAMPLE_RULES))
        cls.texts = {}  # of each rendering, by its values: helm takes longer than all else here

    def render(self, values):
        given = json.dumps(nested({**BASE, **values}))
        if given not in self.texts:
            self.texts[given] = helm_template(options.helm, json.loads(given), self.chart)
        return Rendering(self.texts[given])

    def holds_without(self, case):
        try:
            return case.holds(self.render(case.others))
        except (Refused, AssertionError, KeyError, IndexError, TypeError):
            return False

    def kubeconform(self, *paths):
        where = options.schemas + "/{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
        return subprocess.run([options.kubeconform, "-strict", "-output", "json", "-schema-location", where, *paths],
                              capture_output=True, text=True, timeout=120)

    def test_values_yaml_has_a_case_for_each_value(self):
        def leaves(value, path):
            if isinstance(value, dict) and value:
                for key, part in value.items():
                    yield from leaves(part, path + [key])
            else:
                yield ".".join(path)
        values = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
        tested = {each.path for each in CASES}
        untested = [path for path in leaves(values, [])
                    if not any(path == each or path.startswith(each + ".") for each in tested)]
        self.assertEqual(untested, [])
        self.assertGreaterEqual(len(tested), 60)

    def test_objects_are_those_of_the_strict_schemas(self):
        folder = self.folder / "rendered"
        folder.mkdir()
        for case in CASES:
            text = self.render({**case.others, case.path: case.value}).text
            (folder / f"{case.path}.yaml").write_text(text)
        run = self.kubeconform(str(folder))
        report = json.loads(run.stdout)
        wrong = [each for each in report["resources"] if each["status"] != "statusValid"]
        self.assertEqual(wrong, [], run.stderr)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_schemas_refuse_an_unknown_field_and_a_wrong_type(self):
        good = self.render({}).one("Deployment")
        for change, word in ((lambda d: d["spec"]["template"]["spec"].update(hostnetwork=True), "hostnetwork"),
                             (lambda d: d["spec"].update(replicas="many"), "replicas")):
            bad = json.loads(json.dumps(good))
            change(bad)
            path = self.folder / "bad.yaml"
            path.write_text(json.dumps(bad))
            run = self.kubeconform(str(path))
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(word, run.stdout)

    def test_lint_finds_nothing(self):
        run = subprocess.run([options.helm, "lint", "--strict", str(CHART), "-f", "-"], input=json.dumps(nested(BASE)),
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_the_program_takes_every_setting_and_flag(self):
        seen = set()
        for case in CASES:
            rendering = self.render({**case.others, case.path: case.value})
            path = self.folder / "baton.yaml"
            path.write_text(rendering.settings_text())
            for role in rendering.roles():
                flags = [each.replace("$(POD_IP)", "10.0.0.1").replace("$(POD_NAME)", "w0")
                         for each in rendering.args(role)[1:] if not each.startswith("--config=")]
                key = (path.read_text(), tuple(flags))
                if key in seen:
                    continue
                seen.add(key)
                run = subprocess.run([options.baton, "config", f"--config={path}", *flags], capture_output=True,
                                     text=True, timeout=60)
                self.assertEqual(run.returncode, 0, f"{case.path}, {role}: {run.stderr}")
        self.assertGreater(len(seen), 30)

    def test_the_pull_job_pulls_what_the_workers_look_for(self):
        hub = Hub("org/m", {"config.json": b"{}", "model.safetensors": b"weights"}, ["model.safetensors"])
        self.addCleanup(hub.stop)
        rendering = self.render({"model.pull.enabled": True, "model.demo": False, "model.path": "org/m",
                                 "model.hfCache": "/models/hub", "model.volume.claim": "c", "model.pull.hub": hub.url})
        models = self.folder / "models"
        (job,) = rendering.one("Job")["spec"]["template"]["spec"]["containers"]
        run = subprocess.run([options.baton, *(each.replace("=/models", f"={models}") for each in job["args"])],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        model = rendering.settings()["model"]
        place = pathlib.Path(model["hf_cache"].replace("/models", str(models)))
        self.assertEqual((place / "models--org--m/refs/main").read_text(), hub.commit)

    def test_pods_are_restricted(self):
        rendering = self.render({})
        for role in rendering.roles():
            pod, container = rendering.pod(role), rendering.container(role)
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(pod["automountServiceAccountToken"], False)
            self.assertEqual(container["securityContext"], {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}})
            self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & set(pod))
            secrets = [each["secret"] for each in pod["volumes"] if "secret" in each]
            self.assertTrue(secrets and all(each["defaultMode"] == 0o440 for each in secrets))

    def test_probes_are_told_apart(self):
        rendering = self.render({})
        for role in rendering.roles():
            container = rendering.container(role)
            paths = [container[probe]["httpGet"]["path"] for probe in
                     ("startupProbe", "livenessProbe", "readinessProbe")]
            self.assertEqual(paths, ["/livez", "/livez", "/readyz"])
            ports = {container[probe]["httpGet"]["port"] for probe in
                     ("startupProbe", "livenessProbe", "readinessProbe")}
            self.assertEqual(ports, {"metrics"})  # clients cannot take it

    def test_control_port_is_for_workers_and_kv_ports_are_for_workers(self):
        rendering = self.render({})
        def peers(name, port):
            return [each.get("from") for each in rendering.one("NetworkPolicy", name)["spec"]["ingress"]
                    for open_port in each["ports"] if open_port["port"] == port]
        workers = [{"podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "baton", "app.kubernetes.io/instance": "r"},
            "matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "In",
                                  "values": ["prefill", "decode"]}]}}]
        self.assertEqual(peers("router", "control"), [workers])
        self.assertEqual(peers("workers", "kv0") + peers("workers", "kv1"), [workers, workers])

    def test_workers_reach_a_router_that_is_not_ready(self):
        self.assertIs(self.render({}).one("Service", "routers")["spec"]["publishNotReadyAddresses"], True)

    def test_selectors_find_the_pods_and_nothing_else(self):
        rendering = self.render({})
        for kind, name in (("Service", "r-baton"), ("Service", "routers"), ("Service", "prefill"),
                           ("Service", "decode")):
            selector = rendering.one(kind, name)["spec"]["selector"]
            found = [role for role in rendering.roles() if selector.items() <= rendering.workload(role)["spec"]
                     ["template"]["metadata"]["labels"].items()]
            self.assertEqual(found, [name if name in ("prefill", "decode") else "router"], name)

    def test_a_changed_setting_restarts_the_pods_and_more_replicas_do_not(self):
        def stamps(values):
            rendering = self.render(values)
            return [rendering.workload(role)["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
                    for role in rendering.roles()]
        before = stamps({})
        self.assertEqual(before, stamps({"decode.replicas": 7}))
        after = stamps({"config": {"decode": {"max_batch": 8}}})
        self.assertTrue(all(old != new for old, new in zip(before, after)))

    def test_each_rendering_without_a_secret_makes_another_key_of_64_hex_digits(self):
        texts = [helm_template(options.helm, nested(BASE)) for _ in range(3)]
        keys = {base64.b64decode(Rendering(text).one("Secret")["data"]["key"]).decode() for text in texts}
        self.assertEqual(len(keys), 3)
        for key in keys:
            self.assertRegex(key, re.compile("^[0-9a-f]{64}$"))

    def test_all_names_are_names_for_a_long_release(self):
        text = helm_template(options.helm, nested({**BASE, "cluster.tls.certManager.enabled": True}), self.chart,
                             name="a" * 53)
        for each in Rendering(text).objects:
            self.assertLessEqual(len(each["metadata"]["name"]), 63)

    def test_the_chart_has_the_version_of_the_program(self):
        chart = yaml.load((CHART / "Chart.yaml").read_text(), yaml.CSafeLoader)
        version = subprocess.run([options.baton, "--version"], capture_output=True, text=True, timeout=60).stdout
        self.assertEqual(version.split()[1], chart["appVersion"])

    def test_manifests_are_current(self):
        """scripts/chart_test.sh render writes them."""
        self.assertEqual(manifests.differing(options.helm), [])

    def test_manifests_are_valid_and_make_no_secret(self):
        paths = [str(path) for path in sorted(manifests.FOLDER.glob("*.yaml"))
                 if path.name not in ("values.yaml", "kustomization.yaml")]
        self.assertGreaterEqual(len(paths), 4)
        run = self.kubeconform(*paths)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertFalse(any("kind: Secret" in pathlib.Path(path).read_text() for path in paths))


class Refusals(unittest.TestCase):
    """Values that do not go together are refused by the schema, with the key."""

    def refusal(self, values):
        with self.assertRaises(Refused) as caught:
            helm_template(options.helm, nested({**BASE, **values}))
        return str(caught.exception)

    def test_the_defaults_alone_say_all_that_must_be_decided(self):
        with self.assertRaises(Refused) as caught:
            helm_template(options.helm, {})
        for key in ("/model/path", "/server/apiKeys/secret", "/cluster/tls/secrets/router"):
            self.assertIn(key, str(caught.exception))


def add_cases():
    def value_test(case):
        def test(self):
            values = {**case.others, case.path: case.value}
            self.assertTrue(case.holds(self.render(values)), f"{case.path}: {case.value}")
            # The value decides it: without it, it does not hold.
            if case.path not in HOLD_BEFORE:
                self.assertFalse(self.holds_without(case), f"{case.path} holds without the value")
        return test

    def refusal_test(values, key):
        def test(self):
            message = self.refusal(values)
            self.assertIn("schema", message)
            self.assertIn(key, message)
        return test

    for case in CASES:
        name = "test_value_" + re.sub(r"\W", "_", case.path)
        assert not hasattr(Rendered, name), f"two cases of {case.path}"
        setattr(Rendered, name, value_test(case))
    for what, values, key in REFUSED:
        name = "test_refused_" + re.sub(r"\W+", "_", what)
        assert not hasattr(Refusals, name), f"two refusals called {what}"
        setattr(Refusals, name, refusal_test(values, key))


def main():
    global options
    parser = argparse.ArgumentParser()
    for name in ("baton", "helm", "kubeconform", "schemas"):
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    serve_test.options = options
    add_cases()
    unittest.main(module=sys.modules["__main__"], argv=[sys.argv[0], *rest])


Served = serve_test.Served
if __name__ == "__main__":
    main()
