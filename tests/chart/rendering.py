"""Renders the chart with helm and looks at the objects."""
import json
import pathlib
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/baton"
# Values that a user must decide; all others have defaults.
BASE = {
    "model.demo": True,
    "server.apiKeys.secret": "api",
    "cluster.tls.secrets": {"router": "tls-router", "prefill": "tls-prefill", "decode": "tls-decode"},
}


def nested(values):
    """{"a.b": 1} as {"a": {"b": 1}}; later keys go before earlier ones."""
    result = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        if isinstance(value, dict) and isinstance(place.get(last), dict) and not path.startswith("config"):
            place[last].update(value)
        else:
            place[last] = json.loads(json.dumps(value))
    return result


class Refused(Exception):
    pass


def helm_template(helm, values, chart=CHART, name="r", namespace="ns"):
    """The rendered text. values: nested, they are all that is given. Raises Refused with what helm says."""
    run = subprocess.run([helm, "template", name, str(chart), "--namespace", namespace, "-f", "-"],
                         input=json.dumps(values), capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        raise Refused(run.stderr)
    return run.stdout


class Rendering:
    """The objects of one rendering."""

    def __init__(self, text):
        self.text = text
        self.objects = [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]

    def all(self, kind):
        return [each for each in self.objects if each["kind"] == kind]

    def names(self, kind):
        return sorted(each["metadata"]["name"] for each in self.all(kind))

    def one(self, kind, name=None):
        """The object of a kind whose name ends so."""
        found = [each for each in self.all(kind) if name is None or each["metadata"]["name"].endswith(name)]
        assert len(found) == 1, f"{len(found)} objects of kind {kind} named *{name}: {self.names(kind)}"
        return found[0]

    def workload(self, role):
        return self.one("Deployment" if role == "router" else "StatefulSet", role)

    def pod(self, role):
        return self.workload(role)["spec"]["template"]["spec"]

    def container(self, role):
        return self.pod(role)["containers"][0]

    def args(self, role):
        return self.container(role)["args"]

    def volume(self, role, name):
        found = [each for each in self.pod(role)["volumes"] if each["name"] == name]
        return found[0] if found else None

    def mount(self, role, name):
        found = [each for each in self.container(role)["volumeMounts"] if each["name"] == name]
        return found[0] if found else None

    def ports(self, role):
        return {each["name"]: each["containerPort"] for each in self.container(role)["ports"]}

    def settings_text(self):
        found = [each["data"]["baton.yaml"] for each in self.all("ConfigMap") if "baton.yaml" in each["data"]]
        assert len(found) == 1, self.names("ConfigMap")
        return found[0]

    def settings(self):
        return yaml.load(self.settings_text(), yaml.CSafeLoader)

    def roles(self):
        return ["router"] + [each["metadata"]["name"].rsplit("-", 1)[1] for each in self.all("StatefulSet")]
