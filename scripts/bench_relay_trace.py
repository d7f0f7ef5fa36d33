#!/usr/bin/env python3
"""Relays on and off in turns, on a real trace with real processes.

  scripts/bench_relay_trace.py [--rounds 3] [--parts low,trace,high,saturated]

Two clusters of a router, two prefill workers and a decode worker, of one compute thread each, serve the
same random model on this machine; in one of them, as shipped, prompts may be shared by both prefill
workers, in the other not. Each round sends the same requests to one and then to the other, the order
changing from round to round, and compares the digests of all texts. Parts:
  low        the Mooncake conversation trace, lengths / 32, arrivals stretched: workers are mostly idle
  trace      the same as it was recorded
  high       the same with arrivals near what the workers can do
  saturated  short prompts, 64 at once: tokens per second in all
Prints time to first token of every round, relays on over relays off, and exits 1 where texts differ.
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
TRACE = os.path.join(ROOT, "bench/traces/mooncake_conversation_400.jsonl")
MAX_CONTEXT, VOCAB = 4096, 32000


class Cluster:
    """`baton serve` as a child; stopped with it."""

    def __init__(self, name, arguments, options):
        self.name = name
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"baton_{name}_", suffix=".log", delete=False)
        command = [BATON, "serve", options.model, "--dtype", options.dtype, "--port", "0",
                   "--prefill", "2", "--decode", "1", "--model.max_context", str(MAX_CONTEXT),
                   "--model.isa", options.isa]
        for role, nice in ("prefill", options.nice + 5), ("decode", options.nice):
            command += [f"--{role}.cpus={options.cpus}", f"--{role}.threads=1", f"--{role}.nice={nice}"]
        self.process = subprocess.Popen(command + arguments, stdout=self.log, stderr=subprocess.STDOUT, cwd=ROOT)
        self.url = self.wait_ready()

    def wait_ready(self):
        for _ in range(1200):
            with open(self.log.name, encoding="utf-8") as log:
                ready = re.search(r"^ready *(http:\S+)", log.read(), re.M)
            if ready:
                return ready.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        with open(self.log.name, encoding="utf-8") as log:
            sys.exit(f"baton serve ({self.name}) did not start:\n{log.read()}")

    def isa(self):
        """The workers' ISA path: `auto` chooses by measuring."""
        with open(self.log.name, encoding="utf-8") as log:
            return re.search(r" isa (\w+)", log.read()).group(1)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def load(self, arguments):
        command = [BATON, "bench", "load", "--url", self.url, "--json", "--detailed", "--vocab", str(VOCAB)]
        result = subprocess.run(command + arguments, capture_output=True, text=True, cwd=ROOT, check=False)
        if result.returncode != 0:
            sys.exit(f"bench load ({self.name}) failed:\n{result.stdout}{result.stderr}")
        return json.loads(result.stdout.splitlines()[-1])

    def relays(self):
        """Number of attempts that were relays so far."""
        with open(self.log.name, encoding="utf-8") as log:
            return len(re.findall(r" ranks [2-9]", log.read()))


def percentile(values, percent):
    values = sorted(values)
    place = (len(values) - 1) * percent / 100
    low = int(place)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (place - low)


def figures(ttfts):
    return [statistics.fmean(ttfts), percentile(ttfts, 50), percentile(ttfts, 99)]


def part_arguments(part, options, seed):
    if part == "saturated":
        return ["--requests", str(options.short_requests), "--prompt-tokens", str(options.short_tokens),
                "--output-tokens", "4", "--max-concurrency", "64", "--warmup", "0", "--seed", str(seed)]
    return ["--trace", TRACE, "--scale-lengths", str(1 / 32), "--max-context", str(MAX_CONTEXT), "--spread", "3",
            "--requests", str(options.requests),
            "--scale-time", str({"low": options.low, "trace": 1, "high": options.high}[part]),
            "--warmup", "0", "--seed", str(seed)]


def run_part(part, clusters, options):
    print(f"\n{part}: {' '.join(part_arguments(part, options, 0)[2:])}")
    print(f"{'':24}{'off':>27}   {'on':>27}   {'on / off':>20}")
    print(f"{'round':8}{'relays':>8}{'':8}" + 2 * f"{'mean ms':>9}{'p50':>9}{'p99':>9}   " +
          f"{'mean':>6} {'p50':>6} {'p99':>6} {'tok/s':>6}")
    pooled, speeds, all_equal = {"off": [], "on": []}, {"off": [], "on": []}, True
    rounds, relays_before = [], clusters["on"].relays()
    for number in range(options.rounds):
        relays = clusters["on"].relays()
        results = {}
        for name in ("off", "on") if number % 2 == 0 else ("on", "off"):
            results[name] = clusters[name].load(part_arguments(part, options, options.seed + number))
        all_equal &= results["off"]["digest"] == results["on"]["digest"]
        for name, result in results.items():
            pooled[name] += [1e3 * ttft for ttft in result["ttfts"]]
            speeds[name].append(result["total_token_throughput"])
        rounds.append(show(number + 1, clusters["on"].relays() - relays,
                           {name: [1e3 * ttft for ttft in result["ttfts"]] for name, result in results.items()},
                           speeds["on"][-1] / speeds["off"][-1]))
    show("all", clusters["on"].relays() - relays_before, pooled,
         statistics.fmean(speeds["on"]) / statistics.fmean(speeds["off"]))
    # The host's cores vary from minute to minute, and one slow round would dominate a mean.
    print(f"{'median of the rounds':84}" + line_of([statistics.median(column) for column in zip(*rounds)]))
    print("texts: " + ("equal" if all_equal else "DIFFERENT"))
    return all_equal


def line_of(ratios):
    return " ".join(f"{ratio:6.3f}" for ratio in ratios)


def show(name, relays, ttfts, speed):
    """A line of times to first token; returns the ratios at its end."""
    off, on = figures(ttfts["off"]), figures(ttfts["on"])
    columns = "".join(f"{value:9.1f}" for value in off) + "   " + "".join(f"{value:9.1f}" for value in on)
    ratios = [b / a for a, b in zip(off, on)] + [speed]
    print(f"{name!s:8}{relays:>8}{'':8}{columns}   {line_of(ratios)}", flush=True)
    return ratios


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="low,trace,high,saturated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="random:configs/shapes/llama-125m.json")
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--cpus", default="0-1", help="CPUs that all workers share")
    parser.add_argument("--nice", type=int, default=0, help="of decode workers; prefill workers yield to them")
    parser.add_argument("--low", type=float, default=1.5, help="arrivals of `low` are stretched by this")
    parser.add_argument("--high", type=float, default=0.6)
    parser.add_argument("--requests", type=int, default=100, help="of the trace, in each round")
    parser.add_argument("--short-requests", type=int, default=400)
    parser.add_argument("--short-tokens", type=int, default=300, help="so many that they may be shared")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", default="", help="settings of the cluster with relays; they are on as shipped")
    parser.add_argument("--off", default="--router.relay_min_tokens=0")
    parser.add_argument("--keep-logs", action="store_true")
    return parser.parse_args()


def main():
    options = parse_options()
    clusters = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are stopped
    try:
        for name in ("off", "on"):
            clusters[name] = Cluster(name, getattr(options, name).split(), options)
            options.isa = clusters[name].isa()  # the same path in both
        for cluster in clusters.values():  # workers measure their prefill cost
            cluster.load(["--requests", "12", "--trace", TRACE, "--scale-lengths", str(1 / 32), "--scale-time", "0.5",
                          "--warmup", "0", "--seed", "1000000"])
        equal = all([run_part(part, clusters, options) for part in options.parts.split(",")])
    finally:
        for cluster in clusters.values():
            cluster.stop()
            if options.keep_logs:
                print(f"log of {cluster.name}: {cluster.log.name}")
            else:
                os.unlink(cluster.log.name)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
