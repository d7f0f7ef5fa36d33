"""Debian's Prometheus with the rules of deploy/, in a folder and on a port of its own. Ends with close()."""

import json
import pathlib
import socket
import subprocess
import sys
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "deploy"), str(ROOT / "tests/sdk"), str(ROOT / "tests/support")]
import generate  # noqa: E402
from running_time import wait_until  # noqa: E402

# Scales the times of all rules: a minute is three seconds, which outlast a scrape that other work delays.
SCALE = 1 / 20


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Prometheus:
    """targets: {job: [URL of a page's server]}. Pages over TLS are read whoever has signed for them."""

    def __init__(self, folder, targets, scale=SCALE):
        self.url = f"http://127.0.0.1:{free_port()}"
        folder = pathlib.Path(folder)
        folder.mkdir(exist_ok=True)
        for name, text in generate.rules(scale).items():
            (folder / name).write_text(text)
        jobs = []
        for job, urls in targets.items():
            scheme, _ = urls[0].split("://")
            jobs.append({"job_name": job, "scheme": scheme, "tls_config": {"insecure_skip_verify": True},
                         "static_configs": [{"targets": [url.split("://")[1] for url in urls]}]})
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml", "recording.yml"], "scrape_configs": jobs}))
        self._log = open(folder / "log", "w")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.url.removeprefix('http://')}"], stdout=self._log, stderr=self._log)
        try:
            wait_until(self.is_ready, 20)
        except BaseException:
            self.close()  # nobody else knows of it yet
            raise

    def is_ready(self):
        try:
            return urllib.request.urlopen(self.url + "/-/ready", timeout=2).status == 200
        except OSError:
            return False

    def query(self, expr):
        text = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{text}", timeout=60) as answer:
            return [(row["metric"], float(row["value"][1])) for row in json.load(answer)["data"]["result"]]

    def value(self, expr):
        rows = self.query(expr)
        assert len(rows) == 1, (expr, rows)
        return rows[0][1]

    def firing(self):
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}

    def send_signal(self, number):
        self._process.send_signal(number)

    def close(self):
        self._process.kill()
        self._process.wait()
        self._log.close()
