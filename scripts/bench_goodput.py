#!/usr/bin/env python3
"""Roles against colocated workers on one machine: goodput and time to first token at equal rates.

  scripts/bench_goodput.py [--pairs 5] [--seconds 30] [--workloads trace,sessions] [--rates 0.5,0.8,1,1.2]

Two clusters serve the same model on the same two cores: a prefill and a decode worker, and 2 colocated
ones. A request is good if its time to first token is at most 5 times that of an idle server for a prompt of
its length, and the 99th percentile of its own gaps at most 3 idle steps; both clusters are held to the idle
figures of the colocated one. Its highest rate with 90 % of the requests good is searched first
(`baton bench load --find-rate`); then both run in pairs at shares of that rate, with the same requests, new
ones in each pair, the order changing from pair to pair. Workloads:
  trace      the demo model, Mooncake conversation trace, lengths / 32
  sessions   the 125M shape, 8 users with conversations of a coding agent, lengths / 32; a rate is of turns
Prints what each pair gave, and the medians of its ratios; exits 1 where complete runs of a pair differ in
their texts. A short try, of about two minutes: --pairs 1 --seconds 3 --rates 0.5,1
Wants the release build, two free cores and nothing else. Python's own library is enough.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATON = os.path.join(ROOT, "build/release/baton")
TRACES = os.path.join(ROOT, "bench/traces")
CLUSTERS = {"colocated": ["--colocated", "--prefill", "0", "--decode", "2"],
            "roles": ["--prefill", "1", "--decode", "1"]}
LIMITS = ["--goodput-ttft-x", "5", "--goodput-gap-x", "3"]
LENGTHS = ["--scale-lengths", str(1 / 32), "--max-context", "4096"]
WORKLOADS = {
    "trace": (["--demo"],
              ["--trace", os.path.join(TRACES, "mooncake_conversation_400.jsonl"), "--requests", "400",
               "--spread", "3"] + LENGTHS),
    "sessions": (["random:configs/shapes/llama-125m.json", "--model.max_context", "4096"],
                 ["--trace", os.path.join(TRACES, "agentic_conversations.jsonl"), "--sessions", "8",
                  "--conversations", "18", "--vocab", "32000"] + LENGTHS),
}
WARM_UP_SEED, FIND_SEED, FIRST_SEED = 450, 1, 20  # bench load adds up to ten to a search's seed


class Cluster:
    """`baton serve` as a child; stopped with it."""

    def __init__(self, name, arguments):
        self.name = name
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"baton_{name}_", suffix=".log", delete=False)
        self.process = subprocess.Popen([BATON, "serve"] + arguments + CLUSTERS[name] + ["--port", "0"],
                                        stdout=self.log, stderr=subprocess.STDOUT, cwd=ROOT)
        self.url = self.wait_ready()

    def text(self):
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def wait_ready(self):
        for _ in range(1200):
            ready = re.search(r"^ready *(http:\S+)", self.text(), re.M)
            if ready:
                return ready.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.process.kill()
        sys.exit(f"baton serve ({self.name}) did not start:\n{self.text()}")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        os.unlink(self.log.name)

    def load(self, arguments, seconds, seed):
        """What `baton bench load` prints, and its JSON object."""
        pages = re.findall(r"metrics on (http://\S+)/metrics", self.text())
        command = [BATON, "bench", "load", "--url", self.url, "--label", self.name, "--json",
                   "--worker-metrics", ",".join(pages), "--seconds", str(seconds), "--seed", str(seed)]
        result = subprocess.run(command + LIMITS + arguments, capture_output=True, text=True, cwd=ROOT, check=False)
        if not result.stdout or result.returncode > 1:
            sys.exit(f"bench load ({self.name}) failed:\n{result.stdout}{result.stderr}")
        *table, line = result.stdout.splitlines()
        return table, json.loads(line)


def ratio(a, b):
    return a / b if b > 0 else float("nan")


def is_complete(result):
    return result["cut"] == 0 and result["failed"] == 0


def differ(results):
    """Whether two complete runs gave other texts. A run that its end has cut tells nothing."""
    if not all(is_complete(result) for result in results.values()):
        return False
    return results["roles"]["digest"] != results["colocated"]["digest"]


def show(name, results):
    """A line of both runs; returns the ratios at its end: goodput, median time to first token."""
    roles, colocated = results["roles"], results["colocated"]
    ratios = (ratio(roles["request_goodput"], colocated["request_goodput"]),
              ratio(roles["median_ttft_ms"], colocated["median_ttft_ms"]))
    columns = "".join(f"{r['good_percent']:9.1f}{r['request_goodput']:9.2f}{r['median_ttft_ms']:9.1f}"
                      for r in (colocated, roles))
    moved = ""
    if "sessions" in roles:
        moved = (f"   {roles['sessions']['kv_bytes'] / 1e6 / max(1, roles['sessions']['turns']):.2f} MB of KV a turn, "
                 f"{roles['sessions']['reused_tokens']:.0f} tokens cached, {roles['sessions']['computed_tokens']:.0f} computed")
    print(f"{name:12}{columns}{ratios[0]:9.2f}{ratios[1]:9.2f}{moved}", flush=True)
    return ratios


def run_workload(name, options):
    serve, load = WORKLOADS[name]
    clusters, all_equal = {}, True
    idle_file = tempfile.NamedTemporaryFile(prefix="baton_idle_", suffix=".json").name
    try:
        for cluster in CLUSTERS:
            clusters[cluster] = Cluster(cluster, serve)
        colocated = clusters["colocated"]
        load = load + ["--idle-file", idle_file]
        for cluster in clusters.values():  # workers measure their prefill cost; the first one also idle times
            cluster.load(load + ["--rate", "1"], min(options.seconds, 10), WARM_UP_SEED)
        table, found = colocated.load(load + ["--find-rate"], options.seconds, FIND_SEED)
        print(f"\n{name}\n" + "\n".join(table))
        full = found["found_rate"]
        if full <= 0:
            full = max(found["probes"], key=lambda probe: probe["request_goodput"])["rate"]
            print(f"  in its place the rate with the most good requests a second: {full:.3f}")
        print(f"\n{'':12}{'colocated':>27}{'roles':>27}{'roles / colocated':>18}\n{'pair':12}" +
              2 * f"{'good %':>9}{'good/s':>9}{'ttft p50':>9}" + f"{'good/s':>9}{'ttft':>9}")
        seed = FIRST_SEED
        for share in options.rates:
            rate, ratios = share * full, []
            print(f"{share} x = {rate:.2f} requests/s")
            for pair in range(options.pairs):
                results = {}
                for cluster in list(CLUSTERS) if pair % 2 == 0 else reversed(CLUSTERS):
                    results[cluster] = clusters[cluster].load(load + ["--rate", str(rate)], options.seconds, seed)[1]
                seed += 1
                if differ(results):
                    all_equal = False
                    print("texts DIFFER")
                ratios.append(show(f"  {pair + 1}", results))
            medians = [statistics.median(column) for column in zip(*ratios)]
            print(f"{'  median':66}{medians[0]:9.2f}{medians[1]:9.2f}", flush=True)
    finally:
        for cluster in clusters.values():
            cluster.stop()
        if os.path.exists(idle_file):
            os.unlink(idle_file)
    return all_equal


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="of runs at each rate")
    parser.add_argument("--seconds", type=float, default=30, help="of a run and of a probe, at most 60")
    parser.add_argument("--workloads", default="trace,sessions")
    parser.add_argument("--rates", default="0.5,0.8,1,1.2", help="shares of the rate found for colocated workers")
    options = parser.parse_args()
    options.rates = [float(rate) for rate in options.rates.split(",")]
    if not 0 < options.seconds <= 60 or options.pairs < 1 or options.pairs * len(options.rates) > 400:
        parser.error("--seconds is above 0 and at most 60; --pairs times rates at most 400")
    if unknown := set(options.workloads.split(",")) - set(WORKLOADS):
        parser.error(f"unknown workload {', '.join(unknown)}; use {', '.join(WORKLOADS)}")
    return options


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are stopped
    equal = [run_workload(name, options) for name in options.workloads.split(",")]
    sys.exit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
