"""Dashboards and rules of deploy/ without a server: they are what deploy/generate.py writes, name only series that
exist, and each alert fires on its own series and is silent on others (promtool).

    python3 -B tests/watch/rules_test.py
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import alerts  # noqa: E402
import dashboards  # noqa: E402
import generate  # noqa: E402

SERIES = re.compile(r"\b((?:baton|process)_\w+|vllm:\w+)(?:\{([^}]*)\})?")


def described():
    """Names of docs/METRICS.md, which is held equal to the tables of the rooms, with type and labels."""
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| [^|]* \| ([^|]*) \|", (ROOT / "docs/METRICS.md").read_text(), re.M)
    return {name: (kind, {label.strip() for label in labels.split(",")}) for name, kind, labels in rows}


def expressions():
    for name, (_, _, panels) in dashboards.DASHBOARDS.items():
        for panel in panels:
            for query, _ in panel["queries"]:
                yield f"{name}: {panel['title']}", query
    for name, expr in alerts.RECORDING:
        yield name, expr
    for alert in alerts.ALERTS:
        yield alert["name"], alert["expr"]


class Rules(unittest.TestCase):
    def test_committed_files_are_what_the_script_writes(self):
        for name, text in generate.files().items():
            with self.subTest(name):
                self.assertEqual((ROOT / "deploy" / name).read_text(encoding="utf-8"), text, "run deploy/generate.py")

    def test_every_series_and_label_is_described(self):
        known = described()
        self.assertGreater(len(known), 100)
        scraped = {"job", "instance", "le"}
        for where, query in expressions():
            for name, matchers in SERIES.findall(query):
                with self.subTest(where, name=name):
                    base = re.sub(r"_(bucket|sum|count)$", "", name)
                    kind, labels = known.get(name) or known[base]
                    self.assertEqual(kind == "histogram", name != base and name not in known)
                    for label in re.findall(r"(\w+)\s*[=!]~?", matchers):
                        self.assertIn(label, labels | scraped)

    def test_promtool_takes_rules_and_configuration(self):
        for command in (["check", "rules", "alerts.yml", "recording.yml"], ["check", "config", "prometheus.yml"]):
            done = subprocess.run(["promtool", *command], cwd=ROOT / "deploy/prometheus", capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_fires_on_its_series_and_on_no_others(self):
        tests = []
        for alert in alerts.ALERTS:
            at = "11h" if "goodput" in alert["expr"] else "50m" if alert["for"] != "0s" else "8m"
            for series, n in ((alert["fires"], 1), (alert["silent"], 0), *alert["also"]):
                fired = f'ALERTS{{alertname="{alert["name"]}",alertstate="firing"}}'
                tests.append({
                    "interval": "1m", "input_series": [{"series": s, "values": v} for s, v in series.items()],
                    "promql_expr_test": [{"expr": f"count({fired}) or vector(0)", "eval_time": at,
                                          "exp_samples": [{"labels": "{}", "value": n}]}]})
        self.assertEqual(len(tests), sum(2 + len(alert["also"]) for alert in alerts.ALERTS))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "test.yml"
            rules = [str(ROOT / "deploy/prometheus" / name) for name in ("recording.yml", "alerts.yml")]
            path.write_text(json.dumps({"rule_files": rules, "evaluation_interval": "1m", "tests": tests}))  # as YAML
            done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_has_a_fault_of_real_processes(self):
        import alerts_test
        self.assertEqual(set(alerts_test.FAULTS), {alert["name"] for alert in alerts.ALERTS})
        for name in alerts_test.SLICE:
            self.assertTrue(hasattr(alerts_test.Alerts, f"test_{name}"))

    def test_times_of_all_rules_take_a_scale(self):
        for name, text in generate.rules(1 / 20).items():
            told = re.findall(r"(?:\[|for: |interval: )(\w+)", text)
            plain = re.findall(r"(?:\[|for: |interval: )(\w+)", generate.rules()[name])
            with self.subTest(name):
                self.assertEqual(len(told), len(plain))
                for short, long in zip(told, plain):
                    self.assertEqual(int(short.removesuffix("ms")), 50 * int(long[:-1]) * generate.SECONDS[long[-1]])

    def test_operating_says_what_each_alert_means(self):
        text = (ROOT / "docs/OPERATING.md").read_text(encoding="utf-8")
        for alert in alerts.ALERTS:
            with self.subTest(alert["name"]):
                self.assertIn(f"### {alert['name']}\n", text)

    def test_a_dashboard_is_complete(self):
        for name in dashboards.DASHBOARDS:
            board = json.loads((ROOT / f"deploy/grafana/{name}.json").read_text(encoding="utf-8"))
            titles = [panel["title"] for panel in board["panels"]]
            self.assertEqual(len(titles), len(set(titles)))
            self.assertTrue(all(panel["targets"] for panel in board["panels"]))


if __name__ == "__main__":
    unittest.main()
