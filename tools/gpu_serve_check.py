#!/usr/bin/env python3
"""Serves on a GPU as users do, S3 and S4 of the GPU check end to end (docs/CUDA.md).

  tools/gpu_serve_check.py [--baton build/release/baton] [--device cuda] [--models demo,1B] [--out FILE]

The same requests go to one colocated worker, to a prefill and a decode worker on the same GPU, whose KV
goes through memory of the host, and to the same two while the decode worker is killed. Texts and
log-probabilities must be equal in all three. Then `baton bench load` tells TTFT and ITL of random weights.
Prints a line of JSON per result; exits 1 if anything differs.
"""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOPOLOGIES = {"colocated": ["--colocated", "--prefill", "0", "--decode", "1"],
              "roles": ["--prefill", "1", "--decode", "2"]}
MODELS = {"1B": "random:configs/shapes/llama-3.2-1b.json", "8B": "random:configs/shapes/llama-3.1-8b.json"}


class Server:
    """`baton serve` as a child; stopped with it."""

    def __init__(self, options, name, model, share):
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"baton_{name}_", suffix=".log", delete=False)
        command = [options.baton, "serve", *model, *TOPOLOGIES[name], "--port", "0", "--device", options.device]
        if options.device != "cpu":
            command += ["--model.gpu_memory_utilization", str(share)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, cwd=ROOT,
                                        start_new_session=True)
        self.url = self.wait_ready()

    def text(self):
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def wait_ready(self):
        for _ in range(1800):
            ready = re.search(r"^ready *(http:\S+)", self.text(), re.M)
            if ready:
                return ready.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.stop()
        sys.exit(f"baton serve did not start:\n{self.text()}")

    def children(self, role):
        """Pids of the workers of a role, by their command lines."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as line:
                    words = line.read().split("\0")
            except OSError:
                continue
            if parent == self.process.pid and role in " ".join(words[1:3]):
                found.append(int(pid))
        return sorted(found)

    def ask(self, request):
        call = urllib.request.Request(self.url.rstrip("/") + "/v1/completions", json.dumps(request).encode(),
                                      {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(call, timeout=120) as answer:
                choice = json.load(answer)["choices"][0]
        except urllib.error.HTTPError as error:
            return {"error": error.read().decode()}
        return {"text": choice["text"], "logprobs": choice.get("logprobs"), "end": choice["finish_reason"]}

    def gaps(self, request, beside):
        """Milliseconds between the events of a stream, `beside` running from its tenth event on."""
        call = urllib.request.Request(self.url.rstrip("/") + "/v1/completions",
                                      json.dumps(request | {"stream": True}).encode(),
                                      {"Content-Type": "application/json"})
        times, other = [], None
        with urllib.request.urlopen(call, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    times.append(time.monotonic())
                if len(times) == 10 and other is None:
                    other = threading.Thread(target=beside)
                    other.start()
        other.join()
        return [1000 * (b - a) for a, b in zip(times, times[1:])]

    def stop(self):
        for end in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, end)
                self.process.wait(30)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def requests(n_tokens):
    words = "The harbour at night was quiet and the old lamp turned over the water while rain came in".split()
    asked = []
    for i in range(32):
        prompt = " ".join(words[(i * 7 + k * (i + 3)) % len(words)] for k in range(3 + i * 11))
        request = {"model": "baton", "prompt": prompt, "max_tokens": n_tokens, "seed": i, "temperature": 0,
                   "ignore_eos": True}
        if i % 4 == 1:
            request |= {"temperature": 0.9}
        if i % 4 == 2:
            request |= {"temperature": 0.8, "top_p": 0.9, "top_k": 50}
        if i % 4 == 3:
            request |= {"temperature": 0.7, "frequency_penalty": 0.5}
        if i % 5 == 0:
            request |= {"logprobs": 3}
        if i % 8 == 6:
            request |= {"response_format": {"type": "json_object"}}
        asked.append(request)
    return asked


def model_of(server):
    return json.load(urllib.request.urlopen(server.url.rstrip("/") + "/v1/models"))["data"][0]["id"]


def answers(server, asked, during=None):
    model = model_of(server)
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        running = [pool.submit(server.ask, request | {"model": model}) for request in asked]
        if during:
            during(running)
        return [future.result() for future in running]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", default=os.path.join(ROOT, "build/release/baton"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default="demo,1B")
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    failed = False

    def tell(name, verdict, **values):
        nonlocal failed
        failed |= verdict == "FAIL"
        print(json.dumps({"part": "S3.serve", "name": name, "verdict": verdict, "note": json.dumps(values)},
                         separators=(",", ":")), flush=True)

    models = options.models.split(",")
    if "demo" in models:
        asked = requests(options.tokens)
        started = time.monotonic()
        server = Server(options, "colocated", ["--demo"], 0.2)
        expected = answers(server, asked)
        again = answers(server, asked[::-1])[::-1]
        server.stop()
        bad = [i for i, answer in enumerate(expected) if "error" in answer]
        tell("colocated answers", "FAIL" if bad else "PASS", n=len(asked), seconds=time.monotonic() - started,
             first=expected[bad[0]] if bad else expected[0]["text"][:60])
        differing = sum(a != b for a, b in zip(expected, again))
        tell("the same requests in another order", "FAIL" if differing else "PASS", differing=differing)
        server = Server(options, "roles", ["--demo"], 0.6)
        roles = answers(server, asked)
        differing = sum(a != b for a, b in zip(expected, roles))
        tell("prefill and decode workers", "FAIL" if differing else "PASS", differing=differing)

        under_way = []

        def kill(running):
            time.sleep(0.1)
            under_way.append(sum(not future.done() for future in running))
            os.kill(server.children("decode")[0], signal.SIGKILL)

        killed = answers(server, asked, kill)
        differing = sum(a != b for a, b in zip(expected, killed))
        tell("a decode worker killed", "FAIL" if differing or under_way == [0] else "PASS", differing=differing,
             under_way=under_way[0])
        server.stop()
        errors = [line for line in server.text().splitlines() if " E " in line or "ERROR" in line]
        tell("errors in the log", "INFO", lines=errors[:5])
    for model in models:
        if model not in MODELS:
            continue
        for name in TOPOLOGIES:
            server = Server(options, name, [MODELS[model], "--max-model-len", "40960"], 0.85)
            served = model_of(server)
            row = {"model": served, "prompt": list(range(100, 356)), "max_tokens": 600, "ignore_eos": True,
                   "temperature": 0}
            prompt = {"model": served, "prompt": [5 + i * 7 % 30000 for i in range(32768)], "max_tokens": 1,
                      "temperature": 0}
            took = []

            def long_prompt():
                begin = time.monotonic()
                answer = server.ask(prompt)
                took.append(answer.get("error") or 1000 * (time.monotonic() - begin))

            alone = server.gaps(row, lambda: None)
            beside = server.gaps(row | {"prompt": list(range(200, 456))}, long_prompt)
            tell(f"{model} {name}, a stream while a prompt of 32,768 tokens arrives", "INFO",
                 itl_ms_alone=sorted(alone)[len(alone) // 2], max_alone=max(alone),
                 itl_ms_beside=sorted(beside)[len(beside) // 2], max_beside=max(beside), ttft_ms_of_prompt=took)
            for rate, length in (("1", "1024"), ("8", "1024")):
                command = [options.baton, "bench", "load", "--url", server.url, "--json", "--rate", rate, "--seconds",
                           "6", "--prompt-tokens", length, "--output-tokens", "64"]
                done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
                tell(f"{model} {name}, {rate}/s of {length} tokens", "INFO",
                     load=(done.stdout.strip().splitlines() or [done.stderr[-400:]])[-1])
            server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
