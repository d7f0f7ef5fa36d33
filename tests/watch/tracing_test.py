"""A collector of OTLP/HTTP reads what a running `baton serve --demo` tells of its requests: one trace each, whose spans
lie inside their parents, in order; parents and sampling as W3C Trace Context has them; a failover as two attempts. A
collector that is away, or refuses, costs a line in the log and counted spans, and no request.

    scripts/tracing_test.sh [--baton FILE]
"""

import argparse
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import sys
import threading
import time
import unittest
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "sdk"))
from served_baton import ServedBaton, wait_until  # noqa: E402

OPTIONS = argparse.Namespace(baton="")
PARENT = "b7ad6b7169203331"
# Wall clock and the spans' one have the same second; a stage is rounded to microseconds at worker and router.
SLACK_NS = 3_000


def value_of(value):
    """A value of OTLP's AnyValue, whose 64-bit integers travel as text."""
    (kind, inner), = value.items()
    if kind == "arrayValue":
        return [value_of(each) for each in inner["values"]]
    assert isinstance(inner, {"stringValue": str, "intValue": str, "boolValue": bool, "doubleValue": (int, float)}[kind]), value
    return int(inner) if kind == "intValue" else inner


def attributes_of(span):
    pairs = {each["key"]: value_of(each["value"]) for each in span["attributes"]}
    assert len(pairs) == len(span["attributes"]), "a key twice"
    return pairs


class Span:
    def __init__(self, told):
        self.told = told
        self.trace, self.id, self.parent = told["traceId"], told["spanId"], told.get("parentSpanId", "")
        self.name, self.kind = told["name"], told["kind"]
        self.begin, self.end = int(told["startTimeUnixNano"]), int(told["endTimeUnixNano"])
        self.attributes = attributes_of(told)
        self.status = told.get("status", {})
        assert re.fullmatch("[0-9a-f]{32}", self.trace) and re.fullmatch("[0-9a-f]{16}", self.id), told
        assert isinstance(told["startTimeUnixNano"], str) and isinstance(told["kind"], int), told

    @property
    def seconds(self):
        return (self.end - self.begin) / 1e9


class Collector:
    """A receiver of OTLP/HTTP in JSON."""

    def __init__(self, port=0, status=200):
        self.spans, self.resources, self.posts = [], [], 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(self.path, self.headers["Content-Type"], json.loads(body))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def take(self, path, content_type, body):
        assert (path, content_type) == ("/v1/traces", "application/json"), (path, content_type)
        self.posts += 1
        for resource in body["resourceSpans"]:
            self.resources.append({each["key"]: value_of(each["value"]) for each in resource["resource"]["attributes"]})
            for scope in resource["scopeSpans"]:
                assert scope["scope"]["name"] == "baton"
                self.spans += [Span(each) for each in scope["spans"]]

    def trace(self, trace_id, seconds=30):
        """All spans of a trace: a request's come together."""
        wait_until(lambda: any(span.trace == trace_id for span in self.spans), seconds)
        return [span for span in self.spans if span.trace == trace_id]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Tested(unittest.TestCase):
    def serve(self, port, *arguments):
        served = ServedBaton(OPTIONS.baton, "--demo", f"--tracing.endpoint=http://127.0.0.1:{port}", *arguments)
        self.addCleanup(served.kill)
        return served

    def collect(self, *arguments, **options):
        collector = Collector(*arguments, **options)
        self.addCleanup(collector.close)
        return collector

    @staticmethod
    def ask(served, body, traceparent="", path="/v1/completions"):
        """Returns status, headers, text."""
        connection = http.client.HTTPConnection(*served.address, timeout=60)
        headers = {"Content-Type": "application/json", "X-Request-Id": "r-1"}
        if traceparent:
            headers["traceparent"] = traceparent
        connection.request("POST", path, json.dumps({"ignore_eos": True, **body}), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, answer.headers, text

    @staticmethod
    def counted(served, result):
        connection = http.client.HTTPConnection(*served.address, timeout=10)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
                   if line.startswith("baton_trace_spans_total{") and f'result="{result}"' in line)

    def check_tree(self, spans):
        """Each span but the root has a parent among them and lies inside it. Returns the root and children by name."""
        by_id = {span.id: span for span in spans}
        self.assertEqual(len(by_id), len(spans))
        roots = [span for span in spans if span.parent not in by_id]
        self.assertEqual([span.kind for span in roots], [2])
        for span in spans:
            self.assertLessEqual(span.begin, span.end)
            if span is roots[0]:
                continue
            self.assertEqual(span.kind, 1)
            parent = by_id[span.parent]
            self.assertGreaterEqual(span.begin, parent.begin - SLACK_NS, (span.name, parent.name))
            self.assertLessEqual(span.end, parent.end + SLACK_NS, (span.name, parent.name))
        return roots[0], lambda of, name: sorted(
            (span for span in spans if span.parent == of.id and span.name == name), key=lambda span: span.begin)


class Traced(Tested):
    def test_a_request_is_one_trace_whose_stages_follow_each_other(self):
        collector = self.collect()
        served = self.serve(collector.port, "--router.local=false", "--log.format=json", "--tracing.service=mine")
        trace = "0af7651916cd43dd8448eb211c80319c"
        before = time.time_ns()
        status, headers, _ = self.ask(served, {"prompt": "Tell me of the sea. " * 40, "max_tokens": 12},
                                      f"00-{trace}-{PARENT}-01")
        after = time.time_ns()
        self.assertEqual(status, 200)
        spans = collector.trace(trace)
        root, children = self.check_tree(spans)
        self.assertEqual(root.parent, PARENT)
        self.assertEqual(headers["Traceresponse"], f"00-{trace}-{root.id}-01")
        self.assertEqual(root.name, "POST /v1/completions")
        self.assertLess(before, root.begin)
        self.assertLess(root.end, after)
        self.assertEqual(root.status, {})
        for key, value in {"http.request.method": "POST", "url.path": "/v1/completions", "http.response.status_code": 200,
                           "baton.request_id": "r-1", "gen_ai.usage.output_tokens": 12, "baton.choices": 1,
                           "gen_ai.response.finish_reasons": ["length"], "baton.stream": False}.items():
            self.assertEqual(root.attributes[key], value, key)
        self.assertGreater(root.attributes["gen_ai.usage.input_tokens"], 100)
        self.assertEqual(collector.resources[0]["service.name"], "mine")
        # The stages, one after the other.
        text, = children(root, "text")
        attempt, = children(root, "attempt")
        self.assertEqual(text.begin, root.begin)
        self.assertLessEqual(text.end, attempt.begin)
        stages = [children(attempt, name) for name in ("prefill_queue", "prefill", "transfer", "decode_queue", "decode")]
        self.assertTrue(all(len(each) <= 1 for each in stages))
        (prefill,), (transfer,), (decode,) = stages[1], stages[2], stages[4]
        if stages[0]:
            self.assertAlmostEqual(stages[0][0].end, prefill.begin, delta=SLACK_NS)
        self.assertLess(prefill.begin, decode.begin)
        self.assertLess(transfer.begin, decode.begin)
        self.assertLessEqual(transfer.end, decode.begin + SLACK_NS)
        self.assertTrue(prefill.attributes["baton.worker"].startswith("prefill"))
        self.assertTrue(decode.attributes["baton.worker"].startswith("decode"))
        self.assertEqual(attempt.attributes["baton.prefill_workers"], [prefill.attributes["baton.worker"]])
        self.assertEqual(attempt.attributes["baton.decode_worker"], decode.attributes["baton.worker"])
        self.assertGreater(prefill.seconds, 0.0002)
        self.assertGreater(decode.seconds, 0.0002)
        # The first token comes when the prompt is computed, and what is told of it agrees.
        event, = root.told["events"]
        self.assertEqual(event["name"], "first_token")
        at = int(event["timeUnixNano"])
        self.assertGreaterEqual(at, prefill.end - SLACK_NS)
        self.assertLess(at, root.end)
        self.assertAlmostEqual((at - root.begin) / 1e9, root.attributes["baton.time_to_first_token"], places=5)
        # The log lines of the request name the trace.
        lines = [json.loads(line) for line in served.log().splitlines() if '"request_id":"r-1"' in line]
        self.assertTrue(lines)
        for line in lines:
            self.assertEqual((line["trace_id"], line["span_id"]), (trace, root.id))
        wait_until(lambda: self.counted(served, "sent") == len(spans), 30)
        self.assertEqual(self.counted(served, "dropped"), 0)

    def test_ranks_choices_and_refusals_have_their_spans(self):
        collector = self.collect()
        served = self.serve(collector.port, "--prefill=2", "--router.local=false", "--lab.relay_min_ranks=2",
                            "--router.relay_min_tokens=256")
        answer = self.ask(served, {"prompt": "one two three " * 400, "max_tokens": 4})
        trace = answer[1]["Traceresponse"].split("-")[1]
        root, children = self.check_tree(collector.trace(trace))
        self.assertEqual(root.parent, "")
        attempt, = children(root, "attempt")
        ranks = attempt.attributes["baton.prefill_workers"]
        self.assertEqual(len(set(ranks)), 2)
        self.assertEqual({span.attributes["baton.worker"] for span in children(attempt, "prefill")}, set(ranks))

        answer = self.ask(served, {"prompt": "Say.", "n": 3, "max_tokens": 3, "temperature": 1})
        root, children = self.check_tree(collector.trace(answer[1]["Traceresponse"].split("-")[1]))
        choices = children(root, "choice")
        self.assertEqual(sorted(span.attributes["baton.choice"] for span in choices), [0, 1, 2])
        for choice in choices:
            self.assertEqual(len(children(choice, "attempt")), 1)

        status, headers, _ = self.ask(served, {"prompt": "x", "max_tokens": -1})
        self.assertEqual(status, 400)
        root, _ = self.check_tree(collector.trace(headers["Traceresponse"].split("-")[1]))
        self.assertEqual((root.attributes["http.response.status_code"], root.status), (400, {}))

    def test_a_lost_worker_is_an_attempt_with_an_error_and_the_next_one_goes_on(self):
        collector = self.collect()
        served = self.serve(collector.port, "--decode=2", "--router.local=false")
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        connection = http.client.HTTPConnection(*served.address, timeout=60)
        connection.request("POST", "/v1/completions",
                           json.dumps({"prompt": "Go on.", "max_tokens": 2000, "ignore_eos": True, "stream": True}),
                           {"Content-Type": "application/json", "traceparent": f"00-{trace}-{PARENT}-01"})
        answer = connection.getresponse()
        for _ in range(20):
            answer.readline()
        with urllib.request.urlopen(served.url + "/v1/cluster/live", timeout=10) as live:
            workers = json.load(live)["workers"]
        busy, = [worker["name"] for worker in workers if worker["role"] == "decode" and worker["requests"] > 0]
        victim = int(re.search(rf"started {busy}, process (\d+)", served.log())[1])
        os.kill(victim, signal.SIGKILL)
        text = answer.read()
        connection.close()
        self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
        root, children = self.check_tree(collector.trace(trace))
        self.assertEqual(root.status, {})
        first, second = children(root, "attempt")
        self.assertEqual(first.status["code"], 2)
        self.assertTrue(first.status["message"])
        self.assertIn(first.attributes["baton.failover.cause"], ("worker_lost", "handoff_failed"))
        self.assertEqual(first.attributes["baton.decode_worker"], busy)
        self.assertEqual([first.attributes["baton.attempt"], second.attributes["baton.attempt"]], [1, 2])
        self.assertLessEqual(first.end, second.begin)
        self.assertNotEqual(second.attributes["baton.decode_worker"], busy)
        self.assertEqual(second.status, {})
        self.assertEqual(len(children(second, "decode")), 1)


class Sampled(Tested):
    def test_a_client_decides_for_its_request_and_the_trace_id_for_the_others(self):
        collector = self.collect()
        served = self.serve(collector.port, "--tracing.sample=0.5")
        body = {"prompt": "x", "max_tokens": 1}
        low, high = "0af7651916cd43dd84" + "0" * 13 + "1", "0af7651916cd43dd84" + "f" * 14
        for trace, flags, traced in ((low, "01", True), (high, "00", False)):
            answer = self.ask(served, body, f"00-{trace}-{PARENT}-{flags}")
            self.assertEqual("Traceresponse" in answer[1], traced)
        told = [self.ask(served, body)[1].get("Traceresponse") for _ in range(64)]
        traces = {each.split("-")[1] for each in told if each}
        self.assertTrue(12 <= len(traces) <= 52, len(traces))  # beyond it once in ten million runs
        self.assertTrue(all(int(trace[18:], 16) >= 1 << 55 for trace in traces), traces)
        wait_until(lambda: {span.trace for span in collector.spans} == traces | {low}, 30)

    def test_without_tracing_nothing_is_told_and_nothing_sampled(self):
        served = ServedBaton(OPTIONS.baton, "--demo", "--log.format=json")
        self.addCleanup(served.kill)
        trace = "0af7651916cd43dd8448eb211c80319c"
        status, headers, _ = self.ask(served, {"prompt": "x", "max_tokens": 1}, f"00-{trace}-{PARENT}-01")
        self.assertEqual(status, 200)
        self.assertNotIn("Traceresponse", headers)
        wait_until(lambda: f'"trace_id":"{trace}","span_id":"{PARENT}"' in served.log(), 30)


class Unreached(Tested):
    def test_a_collector_that_is_away_costs_one_line_and_gets_the_spans_when_it_is_back(self):
        port = free_port()
        served = self.serve(port)
        answers = [self.ask(served, {"prompt": "x", "max_tokens": 1}) for _ in range(5)]
        self.assertEqual([answer[0] for answer in answers], [200] * 5)
        wait_until(lambda: "traces: 127.0.0.1" in served.log(), 30)
        time_of = time.monotonic()
        wait_until(lambda: time.monotonic() > time_of + 4, 5)  # it has tried again meanwhile
        self.assertEqual(len(re.findall("traces: 127.0.0.1", served.log())), 1)
        self.assertEqual(self.counted(served, "dropped"), 0)
        collector = self.collect(port)
        wanted = {answer[1]["Traceresponse"].split("-")[1] for answer in answers}
        wait_until(lambda: {span.trace for span in collector.spans} == wanted, 60)
        wait_until(lambda: "takes spans again" in served.log(), 30)

    def test_a_collector_that_refuses_spans_gets_no_second_copy_and_they_are_counted(self):
        collector = self.collect(status=400)
        served = self.serve(collector.port)
        self.assertEqual(self.ask(served, {"prompt": "x", "max_tokens": 1})[0], 200)
        wait_until(lambda: self.counted(served, "dropped") > 0, 30)
        self.assertEqual(self.counted(served, "dropped"), len(collector.spans))
        self.assertEqual(self.counted(served, "sent"), 0)
        self.assertIn("the collector answers 400", served.log())

    def test_an_endpoint_that_cannot_be_one_is_refused_at_the_start(self):
        for endpoint in ("collector:4318", "https://collector:4318", "http://:4318", "http://a:99999"):
            with self.assertRaises(RuntimeError) as refused:
                ServedBaton(OPTIONS.baton, "--demo", f"--tracing.endpoint={endpoint}")
            self.assertIn("tracing.endpoint", str(refused.exception))

    def test_a_name_that_nobody_knows_stops_neither_requests_nor_the_end(self):
        served = ServedBaton(OPTIONS.baton, "--demo", "--tracing.endpoint=http://collector.invalid")
        self.addCleanup(served.kill)
        self.assertEqual(self.ask(served, {"prompt": "x", "max_tokens": 1})[0], 200)
        wait_until(lambda: "traces: collector.invalid:4318: " in served.log(), 30)
        began = time.monotonic()
        self.assertEqual(served.terminate(), 0)
        self.assertLess(time.monotonic() - began, 10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
