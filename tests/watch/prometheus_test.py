"""Debian's Prometheus reads a running `baton serve --demo` under load: every panel of deploy/grafana and of vLLM's own
dashboard has data, and values are plausible and agree with what a client measures.

    scripts/prometheus_test.sh [--baton FILE]
"""

import argparse
import bisect
import json
import math
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from prometheus import Prometheus  # first: it knows where the others are
import dashboards
from mixed_clients import MixedClients
import running_time
from running_time import wait_until
from served_baton import ServedBaton

OPTIONS = argparse.Namespace(baton="")
RATE = "10s"  # of panels: Prometheus scrapes every second here

# The queries of vLLM's dashboard, as of commit 4b5c627c23e6690b8987100d1cbf78e34ac14bf9 of github.com/vllm-project/vllm,
# examples/observability/prometheus_grafana/grafana.json: 12 panels. M stands for {model_name="$model_name"}.
def _vllm_latency(name):
    return [f"histogram_quantile({share}, sum by(le) (rate(vllm:{name}_bucketM[R])))" for share in (0.99, 0.95, 0.9, 0.5)] + [
        f"rate(vllm:{name}_sumM[R]) / rate(vllm:{name}_countM[R])"]


VLLM_PANELS = {
    "E2E Request Latency": _vllm_latency("e2e_request_latency_seconds"),
    "Token Throughput": ["rate(vllm:prompt_tokens_totalM[R])", "rate(vllm:generation_tokens_totalM[R])"],
    "Inter Token Latency": _vllm_latency("inter_token_latency_seconds"),
    "Scheduler State": ["vllm:num_requests_runningM", "vllm:num_requests_waitingM"],
    "Time To First Token Latency": _vllm_latency("time_to_first_token_seconds"),
    "Cache Utilization": ["vllm:kv_cache_usage_percM"],
    "Request Prompt Length": ["sum by(le) (increase(vllm:request_prompt_tokens_bucketM[R]))"],
    "Request Generation Length": ["sum by(le) (increase(vllm:request_generation_tokens_bucketM[R]))"],
    "Finish Reason": ["sum by(finished_reason) (increase(vllm:request_success_totalM[R]))"],
    "Queue Time": ["rate(vllm:request_queue_time_seconds_sumM[R])"],
    "Requests Prefill and Decode Time": ["rate(vllm:request_prefill_time_seconds_sumM[R])",
                                         "rate(vllm:request_decode_time_seconds_sumM[R])"],
    "Max Generation Token in Sequence Group": ["rate(vllm:request_max_num_generation_tokens_sumM[R])"],
}


class OwnClient:
    """One connection, read as bytes come: times that no library hides."""

    def __init__(self, url):
        host, port = url.removeprefix("http://").rsplit(":", 1)
        self._host = host
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self._socket.close()

    def _receive(self):
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server closed the connection in the middle of an answer")
        return data

    def ask(self, n_tokens):
        """Seconds to the first event, and between events; those that come together have none between them."""
        body = json.dumps({"prompt": "Tell me of the sea. " * 12, "max_tokens": n_tokens, "ignore_eos": True,
                           "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n\r\n"
        began = time.perf_counter()
        self._socket.sendall(head.encode() + body)
        text, first, last, gaps = b"", None, None, []
        while b"[DONE]" not in text:
            text += self._receive()
            now = time.perf_counter()
            n = text.count(b"data: {")
            if n > 0 and first is None:
                first = last = now
            while n > 0 and len(gaps) + 1 < n:
                gaps.append(now - last)
                last = now
        while not text.endswith(b"0\r\n\r\n"):  # the next answer begins after it
            text += self._receive()
        return first - began, gaps


HISTOGRAMS = "time_to_first_token_seconds", "inter_token_latency_seconds"


def buckets_apart(q, measured, before, after):
    """By how many buckets the quantile of a client's values is off that of what a server has counted meanwhile."""
    bounds = sorted(after)
    n = after[math.inf] - before[math.inf]
    theirs = next(i for i, bound in enumerate(bounds) if after[bound] - before[bound] >= q * n)
    mine = bisect.bisect_left(bounds, sorted(measured)[math.ceil(q * len(measured)) - 1])
    return abs(mine - theirs)


class Watched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        # Relays where the planner would take none, so that their panels have something to show.
        cls.served = ServedBaton(
            OPTIONS.baton, "--demo", "--prefill", "2", "--decode", "1", "--router.local=false",
            "--lab.relay_min_ranks=2", "--router.relay_min_tokens=512", "--router.max_waiting=24",
            "--server.slo_ttft=5s", "--server.slo_itl=5s")
        cls.addClassCleanup(cls.served.kill)
        wait_until(lambda: len(cls.worker_targets()) == 3, 20)
        cls.prometheus = Prometheus(cls.folder.name, {"baton-router": [cls.served.url],
                                                      "baton-worker": cls.worker_targets()})
        cls.addClassCleanup(cls.prometheus.close)

    @classmethod
    def worker_targets(cls):
        return re.findall(r"metrics on (http://[^/]+)/metrics", cls.served.log())

    def settled(self, expr, value, seconds=15):
        """Waits until Prometheus has seen it."""
        wait_until(lambda: [row[1] for row in self.prometheus.query(expr)] == [value], seconds)

    def sums(self, n_requests, n_tokens):
        """Seconds to first tokens, and of gaps, when so many requests have been counted."""
        self.settled("baton_request_duration_seconds_count", n_requests)
        self.settled("baton_inter_token_latency_seconds_count", n_requests * (n_tokens - 1))
        return [self.prometheus.value(f"baton_{name}") for name in (
            "time_to_first_token_seconds_sum", "inter_token_latency_seconds_sum",
            'first_token_stage_seconds_sum{stage="unaccounted"}')]

    def buckets(self, name):
        """{upper bound: observations up to it} of a histogram."""
        return {float(labels["le"]): n for labels, n in self.prometheus.query(f"sum by (le) (baton_{name}_bucket)")}

    def filled(self, queries):
        """The numbers of a panel; nothing if a query has no data, or the panel no number."""
        values = []
        for query in queries:
            rows = self.prometheus.query(query)
            if not rows or any(value < 0 for _, value in rows):
                return []
            values += [value for _, value in rows if math.isfinite(value)]
        return values

    def panel(self, where, queries, moves=False, seconds=20):
        """The panel's numbers. A rate needs two looks at a series within its window, so it may take a while.
        moves: one of them must be above zero."""
        values = []

        def has_values():
            values[:] = self.filled(queries)
            return bool(values) and (not moves or max(values) > 0)

        with self.subTest(where, queries=queries):
            wait_until(has_values, seconds)
        return values

    # Tests run in the order of their names: on one server, as each needs the load of the one before.
    def test_1_names_are_what_promtool_wants(self):
        pages = [self.served.url + "/metrics"] + [target + "/metrics" for target in self.worker_targets()]
        for page in pages:
            text = urllib.request.urlopen(page, timeout=10).read().decode()
            own = "".join(line for line in text.splitlines(True) if "vllm:" not in line)
            self.assertIn("vllm:", text)
            done = subprocess.run(["promtool", "check", "metrics"], input=own, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_2_a_client_and_the_server_agree(self):
        n, n_tokens, rounds = 20, 24, 6
        client = OwnClient(self.served.url)
        self.addCleanup(client.close)
        client.ask(n_tokens)  # warms up
        n_asked, apart = 1, []
        # Other work of the machine delays a client more than a server: one round in six is to be quiet.
        for _ in range(rounds):
            before, counted = self.sums(n_asked, n_tokens), [self.buckets(name) for name in HISTOGRAMS]
            took = [client.ask(n_tokens) for _ in range(n)]
            n_asked += n
            after = self.sums(n_asked, n_tokens)
            counted = [(old, self.buckets(name)) for name, old in zip(HISTOGRAMS, counted)]
            measured = [first for first, _ in took], [gap for _, gaps in took for gap in gaps]
            bucket = max(buckets_apart(q, mine, *its) for mine, its in zip(measured, counted)
                         for q in ((0.5, 0.9, 0.99) if OPTIONS.quiet else (0.5,)))
            n_gaps = n * (n_tokens - 1)
            seen = sum(measured[0]) / n, sum(measured[1]) / n_gaps
            told = (after[0] - before[0]) / n, (after[1] - before[1]) / n_gaps
            rest = (after[2] - before[2]) / n
            print(f"first token: client {1e3 * seen[0]:.3f} ms, server {1e3 * told[0]:.3f} ms; "
                  f"gap: client {1e3 * seen[1]:.3f} ms, server {1e3 * told[1]:.3f} ms; "
                  f"unaccounted {1e3 * rest:.3f} ms; quantiles {bucket} buckets apart")
            # Quiet: within 2 %, or 1 ms. Beside other work a unit, a stage or a request that is missed still shows.
            share, seconds = (0.02, 1e-3) if OPTIONS.quiet else (0.3, 20e-3)
            apart.append(max(*(abs(mine - its) / max(share * mine, seconds) for mine, its in zip(seen, told)),
                             rest / 1e-3, bucket / 2))  # quantiles: within one bucket
            if apart[-1] < 1:
                break
        self.assertLess(min(apart), 1)
        # The unaccounted part is at most 0.66 ms in 99 of 100 requests.
        rest = 'baton_first_token_stage_seconds_bucket{stage="unaccounted",le=~"%s"}'
        self.assertGreaterEqual(self.prometheus.value(rest % "0.000655.*"), 0.99 * self.prometheus.value(rest % "[+]Inf"))
        stages = self.prometheus.value("sum(baton_first_token_stage_seconds_sum)")
        whole = self.prometheus.value("baton_time_to_first_token_seconds_sum")
        self.assertAlmostEqual(stages, whole, delta=1e-6 * whole + 1e-6)
        self.assertEqual(self.prometheus.value('baton_slo_requests_total{slo="all",met="true"}'), n_asked)
        self.assertEqual(self.prometheus.value("baton_goodput_tokens_total"), n_asked * n_tokens)
        self.assertEqual(self.prometheus.value("vllm:generation_tokens_total"), n_asked * n_tokens)
        self.assertGreater(self.prometheus.value("vllm:prefix_cache_hits_total"), 0)
        rows = self.prometheus.query("vllm:cache_config_info")
        self.assertEqual(len(rows), 1)
        self.assertEqual(int(rows[0][0]["num_gpu_blocks"]), self.prometheus.value("baton_cluster_kv_capacity_pages"))

    def test_3_every_panel_has_data_under_load(self):
        clients = MixedClients(self.served.url, 4)
        try:
            # A client left in the middle, and a whole window of rates is under load.
            wait_until(lambda: self.filled(['sum(increase(baton_cancel_latency_seconds_count[10s])) > 1']), 30)
            for name, (_, _, panels) in dashboards.DASHBOARDS.items():
                for panel in panels:
                    self.panel(f"{name}: {panel['title']}",
                               [query.replace("$__rate_interval", RATE).replace("$model", "demo")
                                for query, _ in panel["queries"]])
            for title, queries in VLLM_PANELS.items():
                filled = [query.replace("M", '{model_name="demo"}').replace("[R]", f"[{RATE}]") for query in queries]
                self.panel("vLLM: " + title, filled, moves=True)
            # Histograms whose panels show other series, too.
            for name in ("baton_prefill_imbalance_ratio", "baton_second_token_gap_seconds", "baton_kv_transfer_exposed_seconds",
                         "baton_plan_first_token_seconds", "baton_cancel_latency_seconds"):
                self.panel(name, [f"sum({name}_count)"], moves=True)
            for role in ("prefill", "decode"):  # not known in the router's first minute
                self.panel("wanted: " + role, [f'baton_pool_desired_replicas{{role="{role}"}}'], moves=True, seconds=80)
            # The median wait cannot be longer than what the slowest saw.
            quantile = "histogram_quantile(%s, sum by (le) (rate(baton_time_to_first_token_seconds_bucket[10s])))"
            self.assertLessEqual(self.prometheus.value(quantile % 0.5), self.prometheus.value(quantile % 0.99))
            for ratio in ("baton_kv_usage_ratio", "baton:goodput:ratio_rate5m"):
                self.assertLessEqual(max(self.panel(ratio, [ratio])), 1)
            pages = 'sum by (worker) (baton_kv_pages{state!="shared"}) - on (worker) baton_kv_pages{state="shared"}'
            for _, left in self.prometheus.query(f"({pages}) - on (worker) baton_kv_capacity_pages"):
                self.assertLessEqual(abs(left), 0)
            self.assertEqual(self.prometheus.firing() - {"BatonTooFewWorkers"}, set())
        finally:
            clients.end()
        self.assertEqual(clients.failures, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    parser.add_argument("--quiet", action="store_true", help="nothing else runs: judges small times")
    OPTIONS, rest = parser.parse_known_args()
    running_time.start()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
