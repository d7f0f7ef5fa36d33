#!/usr/bin/env python3
"""Counts instructions per token by valgrind's callgrind (Debian's package `valgrind`): of a router, of a decode worker,
and what metrics and traces add to them. Fails if that is more than 1 %.

    scripts/count_instructions.py [BATON]     build/release/baton if not told; about a minute
"""

import http.client
import http.server
import json
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATON = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/release/baton")
TOKENS = 200  # of a request
# Inclusive costs of these are what metrics and the page /ui, and traces, add.
METRICS = ["latency_windows.cc:baton::LatencyWindows::Add(", "running_request.cc:baton::RunningRequest::OnToken(",
           "front_metrics.h:baton::ApiFront::OnToken(", "front_metrics.cc:baton::FrontMetrics::OnFinished(",
           "live_record.cc:baton::LiveRecord::OnFinished("]
TRACES = ["request_spans.cc:baton::SpansOf(", "tracer.cc:baton::Tracer::Begin(", "span_exporter.cc:baton::SpanExporter::Run("]


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def request(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


def await_ready(port):
    end = time.monotonic() + 180
    while time.monotonic() < end:
        try:
            if request(port, "GET", "/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit("the cluster did not get ready")


def count(role, n_requests, folder):
    """Instructions of the process with this role for so many requests, all and by function."""
    port, control = free_port(), free_port()
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    key = folder / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    shared = ["--demo", f"--cluster.key_file={key}"]
    commands = {
        # Without local answers: the decode worker decodes.
        "router": ["router", *shared, f"--router.control=127.0.0.1:{control}", f"--server.port={port}", "--router.local=false",
                   "--prefill.workers=1", "--decode.workers=1",
                   f"--tracing.endpoint=http://127.0.0.1:{collector.server_address[1]}"],
        "prefill": ["prefill", *shared, f"--cluster.router=127.0.0.1:{control}"],
        "decode": ["decode", *shared, "--decode.threads=1", f"--cluster.router=127.0.0.1:{control}"]}
    out, processes = folder / role, {}
    with open(folder / "log", "w") as log:
        for name, command in commands.items():
            tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"] if name == role else []
            processes[name] = subprocess.Popen([*tool, BATON, *command], stdout=log, stderr=log)
        try:
            await_ready(port)
            body = {"prompt": "x", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}

            def ask():
                status, text = request(port, "POST", "/v1/completions", body)
                assert status == 200 and text.endswith(b"data: [DONE]\n\n")

            ask()
            pid = str(processes[role].pid)
            subprocess.run(["callgrind_control", "-z", pid], check=True, stdout=subprocess.DEVNULL)
            for _ in range(n_requests):
                ask()
            time.sleep(1.5)  # the last batch of spans
            subprocess.run(["callgrind_control", "-d", pid], check=True, stdout=subprocess.DEVNULL)
        finally:
            collector.shutdown()
            for process in processes.values():
                process.terminate()
            for process in processes.values():
                process.wait()
    told = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--auto=no", "--threshold=100", f"{out}.1"], check=True,
                          capture_output=True, text=True).stdout
    lines = [(int(cost.replace(",", "")), name) for cost, name in re.findall(r"^\s*([\d,]+) \([^)]*\)\s+(.*)$", told, re.M)]
    (total,) = {cost for cost, name in lines if "PROGRAM TOTALS" in name}
    return total, lines


def part(lines, functions):
    found = [max((cost for cost, name in lines if function in name), default=0) for function in functions]
    assert all(found), f"callgrind does not know {functions[found.index(0)]}"
    return sum(found)


def main():
    n_requests = 20
    n = n_requests * TOKENS
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        router, lines = count("router", n_requests, folder)
        decode, _ = count("decode", 1, folder)
    metrics, traces, path = part(lines, METRICS) / n, part(lines, TRACES) / n, router / n + decode / TOKENS
    print(f"instructions per token, of a demo model and requests of {TOKENS} tokens, each traced: router {router / n:,.0f}, "
          f"decode worker {decode / TOKENS:,.0f}; metrics {metrics:,.0f} ({metrics / path:.2%}), "
          f"traces {traces:,.0f} ({traces / path:.2%})")
    return 0 if metrics + traces <= 0.01 * path else 1


if __name__ == "__main__":
    sys.exit(main())
