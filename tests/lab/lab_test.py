"""A cluster on six hosts made of network namespaces (deployment.py): what breaks between hosts, and what is done to
them. One cluster for all cases; each leaves it whole. scripts/lab.sh makes the namespaces around it."""
import argparse
import contextlib
import itertools
import json
import pathlib
import subprocess
import sys
import time
import unittest
from concurrent import futures

from capture import Capture, marks_of
from deployment import CONTROL, ROUTERS, WORKERS, Deployment, seconds_until  # knows where the next two are
from network import both_ways

import upgrade
import running_time
from lab_load import Load, assert_all_right, tell

NOTICED_S = 5  # a cut link is noticed within
ROUTED_S = 2  # a worker that comes is routed to within, and one that goes no more
STARTED = "metrics on http"
LONG = 1500  # tokens
PROMPT = "Zanzibar 7351 crosses the quiet harbour while eleven violet lanterns burn. Tell what happens:"
# Cases that scripts/test.sh runs: a minute, and no limit of time that a busy machine could break, but for ROUTED_S.
SLICE = ("a_chat_is_answered", "killed_workers_come_back", "workers_that_come_and_go",
         "certificates_and_authority_change_under_streams", "a_host_that_nobody_reaches",
         "strangers_are_refused_by_name", "no_token_on_the_control_port")
options = None
lab = None


def loaded(router="router0"):
    return Load(lab, router)


def complete(prompt, router="router0", **parameters):
    body = {"prompt": prompt, "max_tokens": 400, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    told = lab.network.get(router, "/v1/completions", body=json.dumps({**body, **parameters}), seconds=120)
    return json.loads(told)["choices"][0]


class Lab(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name in (*ROUTERS, *WORKERS):
            lab.start(name)
        seconds = seconds_until("four workers at both routers", lab.is_whole)
        tell(f"four workers of four hosts joined two routers over mutual TLS after {seconds:.1f} s")

    def setUp(self):
        self.stood = running_time.stood()

    def tearDown(self):
        if running_time.stood() > self.stood:
            tell(f"the machine stood still for {running_time.stood() - self.stood:.0f} s meanwhile")
        lab.pids()
        seconds_until("the cluster is whole again", lab.is_whole)

    def assertAllRight(self, load, at_least):
        assert_all_right(self, load, at_least)

    def test_a_chat_is_answered(self):
        for router in ROUTERS:
            told = lab.network.get(router, "/v1/chat/completions", body=json.dumps(
                {"model": "demo", "max_tokens": 8, "temperature": 0,
                 "messages": [{"role": "user", "content": "What is 2 + 3?"}]}))
            self.assertIn("5", json.loads(told)["choices"][0]["message"]["content"])
        received = sum(lab.metric(worker, "baton_kv_received_bytes_total{") for worker in ("decode0", "decode1"))
        signed = sum(lab.metric(worker, "baton_kv_signed_chunks_total{") for worker in ("prefill0", "prefill1"))
        self.assertGreater(received, 0)
        self.assertGreater(signed, 0)  # another host's network is not trusted
        tell(f"answered through both routers, {received:.0f} bytes of KV between hosts, with MACs")

    def test_killed_workers_come_back(self):
        with loaded() as load:
            for worker in WORKERS:
                time.sleep(0.3)
                lab.kill(worker)
                lost = seconds_until(f"{worker} is lost", lambda: lab.workers_of("router0") == 3)
                lab.start(worker)
                back = seconds_until(f"{worker} is back", lab.is_whole)
                tell(f"{worker} killed: noticed after {lost:.2f} s, back {back:.1f} s after its start")
        self.assertAllRight(load, 20)
        self.assertGreater(load.failovers, 0)

    def test_workers_that_come_and_go(self):
        """One that comes is routed to at once; one that goes gets nothing more, and ends what it has. Counted from the
        line of its log that says that it has started, before a router is connected; and from SIGTERM."""
        wanted = complete(PROMPT, max_tokens=LONG)["token_ids"]
        n_lost = self.lost_parts()
        with loaded() as load, loaded("router1") as other, futures.ThreadPoolExecutor(6) as pool:
            answers = [pool.submit(complete, PROMPT, max_tokens=LONG) for _ in range(6)]  # keep decode1 there
            seconds_until("both decode", lambda: all(lab.metric(each, "baton_worker_decode_rows{") > 1
                                                     for each in ("decode0", "decode1")))
            seconds = [self.last_work_of("decode1")]
            for answer in answers:
                self.assertEqual(answer.result()["token_ids"], wanted)
            seconds += [self.first_work_of("decode1"), self.last_work_of("prefill1"), self.first_work_of("prefill1")]
        tell(f"given work {seconds[1]:.2f} s (decode1) and {seconds[3]:.2f} s (prefill1) after they had started")
        for each in (load, other):
            self.assertAllRight(each, 20)
        self.assertLessEqual(max(seconds[1::2]), ROUTED_S)
        if not options.slice:  # a queue may have handed work over late
            self.assertLessEqual(max(seconds[::2]), ROUTED_S)
        if running_time.stood() == self.stood:  # else streams have broken by themselves
            self.assertEqual(self.lost_parts(), n_lost)  # BatonWorkersLost is silent

    @staticmethod
    def lost_parts():
        return sum(lab.metric(router, f'baton_failovers_total{{cause="{cause}"')
                   for router in ROUTERS for cause in ("worker_lost", "stuck"))

    def first_work_of(self, worker):
        """Starts the worker; returns the seconds until it is given work, the least of three times: of a machine that
        builds beside, single ones are long."""
        seconds = []
        while not seconds or (min(seconds) > ROUTED_S and len(seconds) < 3):
            if seconds:
                self.assertEqual(lab.end(worker), 0)
            seconds.append(self.start_under_load(worker))
        return min(seconds)

    def start_under_load(self, worker):
        n_starts = lab.log(worker).count(STARTED)
        lab.start(worker)
        seconds_until(f"{worker} has started", lambda: lab.log(worker).count(STARTED) > n_starts)
        numbers = itertools.count()  # nobody has the KV of prompts that are new

        def has_work():
            complete(f"{next(numbers)} {PROMPT}", max_tokens=2)
            return self.work_of(worker) > 0

        return seconds_until(f"{worker} is routed to", has_work)

    @staticmethod
    def work_of(worker):
        """What grows with each request that is given to the worker: tokens of prompts, bytes of KV."""
        return lab.metric(worker, tuple(f"baton_{each}_total{{" for each in (
            "prefill_tokens", "prefill_reused_tokens", "kv_received_bytes")))

    def last_work_of(self, worker):
        """Tells the worker to end and awaits it; returns the seconds until it was given work for the last time."""
        lab.tell_to_end(worker)
        begun, last, work, ended = running_time.now(), 0, None, lambda: lab.programs[worker].poll() is not None
        while not ended():
            with contextlib.suppress(OSError):  # it ends meanwhile
                before, work = work, self.work_of(worker)
                last = running_time.now() - begun if before is not None and work > before else last
            time.sleep(0.01)
        tell(f"{worker} got its last work {last:.2f} s after SIGTERM, and ended "
             f"{running_time.now() - begun - last:.1f} s later")
        self.assertEqual(lab.await_end(worker), 0)
        return last

    def cut_from_router(self, what, cut, worker, routers=("router0",)):
        """A cut between a worker and routers: who notices, who goes on, and nobody is started anew."""
        pids = lab.pids()
        n_left = len(ROUTERS) - len(routers)
        with loaded() as load:
            time.sleep(1)
            with cut:
                noticed = seconds_until(f"{worker} is lost",
                                        lambda: all(lab.workers_of(router) == 3 for router in routers))
                if n_left:
                    self.assertEqual(lab.workers_of("router1"), 4)
                at_worker = noticed + seconds_until(f"{worker} loses its routers",
                                                    lambda: lab.routers_of(worker) == n_left)
                time.sleep(1)
            healed = seconds_until(f"{worker} is back", lab.is_whole)
            time.sleep(1)
        tell(f"{what}: the router noticed after {noticed:.1f} s, {worker} after {at_worker:.1f} s at most; whole "
             f"{healed:.1f} s after the cut healed")
        self.assertAllRight(load, 20)
        if not options.slice:
            self.assertLessEqual(max(noticed, at_worker), NOTICED_S)
        self.assertEqual(lab.pids(), pids)

    def test_a_black_hole_between_router_and_decode_worker(self):
        cut = lab.network.black_hole(*both_ways("router0", "decode0"))
        self.cut_from_router("a black hole between router0 and decode0, both ways", cut, "decode0")

    def test_a_black_hole_between_router_and_prefill_worker(self):
        cut = lab.network.black_hole(*both_ways("router0", "prefill0"))
        self.cut_from_router("a black hole between router0 and prefill0, both ways", cut, "prefill0")

    def test_a_black_hole_of_one_way_between_router_and_worker(self):
        for source, sink in both_ways("router0", "decode1"):
            cut = lab.network.black_hole((source, sink))
            self.cut_from_router(f"a black hole of one way, from {source} to {sink}", cut, "decode1")

    def test_a_host_that_nobody_reaches(self):
        self.cut_from_router("decode0's port of the bridge off", lab.network.port_off("decode0"), "decode0", ROUTERS)
        self.cut_from_router("prefill1's link down", lab.network.link_down("prefill1"), "prefill1", ROUTERS)

    def cut_between_workers(self, what, *ways):
        """A cut that routers cannot see: the pair's handoffs end, and their requests go on by another one."""
        pids = lab.pids()

        def failed():
            return lab.metric("router0", 'baton_failovers_total{cause="handoff_failed"')

        def handed_over():
            return lab.metric("prefill0", f'baton_relay_bytes_total{{kind="decode",link="{decode0}:')

        def answered():
            return lab.metric("router0", "vllm:request_success_total{")

        decode0 = lab.network.addresses["decode0"]
        with loaded() as load:
            seconds_until("prefill0 hands over to decode0", lambda: handed_over() > 0)
            n_failed, n_answered = failed(), answered()
            with lab.network.black_hole(*ways):
                noticed = seconds_until("a handoff ends", lambda: failed() > n_failed)
                time.sleep(NOTICED_S)  # so do those that began meanwhile
                n_failed = failed()
                time.sleep(max(0, 16 - noticed - NOTICED_S))
                n_tried, n_answered = failed() - n_failed, answered() - n_answered
                self.assertEqual(lab.workers_of("router0"), 4)
                self.assert_told_as_broken("prefill0", "decode0")
            before = handed_over()
            healed = seconds_until("prefill0 hands over to decode0 again", lambda: handed_over() > before)
            time.sleep(1)
        tell(f"{what}: noticed after {noticed:.1f} s, {n_answered:.0f} requests answered in its 16 s, {n_tried:.0f} "
             f"tried the pair again; it handed over {healed:.1f} s after it healed")
        self.assertAllRight(load, 20)
        self.assertLessEqual(noticed, NOTICED_S)
        self.assertLessEqual(n_tried, 2)  # who tries loses seconds
        self.assertGreater(n_answered, 0)
        seconds_until("no link is told as broken any more", lambda: not self.broken_links(), 90)
        self.assertEqual(lab.pids(), pids)

    @staticmethod
    def broken_links():
        return json.loads(lab.network.get("router0", "/v1/cluster"))["broken_links"]

    def assert_told_as_broken(self, source, sink):
        """Once a request has tried the link in vain, operators see it, and what to change."""
        link = {"from": source, "to": sink}
        told = seconds_until(f"{link} is told as broken", lambda: link in self.broken_links())
        tell(f"/v1/cluster names the link {told:.1f} s later")
        url = "http://127.0.0.1:8000"
        for command, expected in ((("top", url), rf"(?m)^{source} .*{sink} BROKEN"),
                                  (("doctor", "--cluster", url), rf"BAD +link +{source} -> {sink}: broken")):
            done = subprocess.run(lab.network.command("router0", options.baton, *command), capture_output=True,
                                  text=True, timeout=120)
            self.assertRegex(done.stdout, expected)

    def test_a_black_hole_between_workers(self):
        self.cut_between_workers("a black hole between prefill0 and decode0, both ways",
                                 *both_ways("prefill0", "decode0"))

    def test_a_black_hole_of_one_way_between_workers(self):
        for source, sink in both_ways("prefill0", "decode0"):
            self.cut_between_workers(f"a black hole of one way, from {source} to {sink}", (source, sink))

    def test_a_slow_link(self):
        with loaded() as load:
            with lab.network.slow("prefill0", "5mbit"):
                time.sleep(5)
        tell("prefill0 sent 5 Mbit/s at most for 5 s, 1 Gbit/s before and after")
        self.assertAllRight(load, 20)

    def test_certificates_and_authority_change_under_streams(self):
        """First both authorities are trusted, then certificates are the new one's, then it alone is trusted."""
        pids = lab.pids()
        with loaded() as load:
            old, lab.authority = lab.authority, lab.new_authority("second")
            n_read = [lab.log(router).count("read again") for router in ROUTERS]
            lab.trust(old, lab.authority)
            for router, n in zip(ROUTERS, n_read):
                seconds_until("the authorities are read", lambda: lab.log(router).count("read again") > n)
            lab.sign_all()
            lab.trust(lab.authority)
            time.sleep(3)  # routers take new files within two seconds
            seconds_until("the cluster is whole", lab.is_whole)
            self.assertEqual(lab.pids(), pids)
            for worker in ("prefill1", "decode1"):
                self.assertEqual(lab.end(worker), 0)
                lab.start(worker)
                seconds_until(f"{worker} joins by the new authority alone", lab.is_whole)
        tell("authority and certificates changed; two workers joined again with the new ones")
        self.assertAllRight(load, 20)

    def test_workers_are_upgraded_one_by_one(self):
        with loaded() as load:
            n_rounds, begun = 0, load.n_answered()
            answered = begun
            while n_rounds == 0 or answered - begun < options.requests:
                for worker in WORKERS:
                    self.restart(worker)
                before, answered = answered, load.n_answered()
                self.assertGreater(answered, before)
                n_rounds += 1
        tell(f"each worker was restarted {n_rounds} times")
        self.assertAllRight(load, max(20, options.requests))

    def restart(self, worker):
        begun = running_time.now()
        self.assertEqual(lab.end(worker), 0)
        drained = running_time.now() - begun
        lab.start(worker)
        back = seconds_until(f"{worker} is back", lab.is_whole)
        tell(f"{worker} drained and ended within {drained:.1f} s, and was back {back:.1f} s after its start")

    def test_a_killed_router_fails_its_own_streams_alone(self):
        with loaded("router1") as others:
            with loaded("router0") as own:
                time.sleep(1)
                lab.kill("router0")
                lost = seconds_until("workers lose it", lambda: all(lab.routers_of(each) == 1 for each in WORKERS))
                time.sleep(1)
            lab.start("router0")
            back = seconds_until("workers dial its successor", lab.is_whole)
            time.sleep(1)
        tell(f"workers knew of router0's end after {lost:.1f} s, and had dialled the next {back:.1f} s after its start")
        self.assertAllRight(others, 20)
        self.assertEqual(others.failovers, 0)
        self.assertEqual(own.result["wrong"], 0)
        # A stream of each client breaks; further ones the kernel took for the ending process, which saw none of them.
        for kind in ("failed", "unanswered"):
            self.assertLessEqual(own.result[kind], own.n_clients, own.result["why"])
        for worker in WORKERS:
            seconds_until("nothing of it is held", lambda: lab.metric(worker, "baton_worker_decode_rows{") +
                          lab.metric(worker, "baton_worker_prefill_prompts{") == 0)

    def test_strangers_are_refused_by_name(self):
        lab.sign("stranger", "green", "decode")
        lab.start_worker("stranger", "decode1", "stranger")
        for reason in ("other_cluster", "no_certificate"):
            if reason == "no_certificate":
                subprocess.run(lab.network.command("decode1", "openssl", "s_client", "-connect", f"router0:{CONTROL}",
                                                   "-alpn", "h2"), stdin=subprocess.DEVNULL, capture_output=True,
                               timeout=30)
            seconds_until(f"{reason} is counted", lambda: lab.metric(
                "router0", f'baton_workers_refused_total{{reason="{reason}"') >= 1)
        lab.kill("stranger")
        self.assertRegex(lab.log("router0"), "other_cluster.*green, not blue")
        seconds_until("the cluster is whole", lab.is_whole)
        tell("a worker of another cluster and a peer without a certificate: refused, counted, named")

    def test_no_token_on_the_control_port(self):
        """Beside it the same over a plain control stream, where all is found: this test can fail."""
        control = Capture(lab, "control", "router0", "eth0", CONTROL)
        plain = Capture(lab, "plain", "decode0", "lo", CONTROL + 1)
        seconds_until("captures begin", lambda: control.has_begun() and plain.has_begun())
        key = ("--demo", "--cluster.key_file", lab.folder / "key", "--model.weight_cache", lab.folder / "cache")
        lab.run("plain_router", "decode0", options.baton, "router", *key, "--router.control",
                f"127.0.0.1:{CONTROL + 1}", "--port", 8000)
        lab.run("plain_worker", "decode0", options.baton, "decode", *key, "--colocated", "--cluster.router",
                f"127.0.0.1:{CONTROL + 1}", "--decode.threads", 1)
        # A worker that joins while the port is captured shows its whole connection.
        lab.kill("decode1")
        lab.start("decode1")
        seconds_until("decode1 is back", lab.is_whole)
        seconds_until("the plain router serves", lambda: complete(PROMPT, "decode0", max_tokens=1))
        prompt = json.loads(lab.network.get("router0", "/tokenize", body=json.dumps({"prompt": PROMPT})))["tokens"]
        answer = complete(PROMPT)["token_ids"]
        for router in ("router0", "decode0"):  # the answer once more, as the prompt that it has become
            self.assertEqual(complete(PROMPT, router)["token_ids"], answer)
            complete(prompt + answer, router, max_tokens=4)
        for name in ("plain_worker", "plain_router"):
            lab.kill(name)
        time.sleep(0.5)  # the kernel gives packets to who captures some time later
        for capture in (control, plain):
            capture.stop()
        secrets = [lab.key.encode(), bytes.fromhex(lab.key)]
        marks, of_answer = marks_of(prompt), marks_of(answer)
        tell(f"{len(marks)} marks of the prompt, {len(of_answer)} of the answer: {plain.count(marks)} and "
             f"{plain.count(of_answer)} in {len(plain.bytes):,} plain bytes, {control.count(marks)} and "
             f"{control.count(of_answer)} in {len(control.bytes):,} bytes of the control port")
        self.assertEqual(plain.count(marks), len(marks))
        self.assertEqual(plain.count(of_answer), len(of_answer))
        self.assertEqual(plain.count([b"baton.wire.Control"]), 1)
        self.assertEqual(control.count([*marks, *of_answer, b"baton.wire.Control"]), 0)
        self.assertEqual(control.count(secrets) + plain.count(secrets), 0)  # the cluster's key is never sent
        self.assertGreater(len(control.bytes), 50_000)
        payloads = control.first_payloads()
        self.assertGreaterEqual(len(payloads), 2)  # both sides of decode1's new connection
        for payload in payloads:
            self.assertEqual(payload[:2], b"\x16\x03", payload[:40])  # a handshake of TLS


def main():
    global options, lab
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--requests", type=int, default=0, help="that are answered beside restarts of workers")
    parser.add_argument("--old", type=pathlib.Path, help="another build: only what upgrade.py does with both")
    parser.add_argument("--slice", action="store_true", help="those of SLICE alone, without limits of time")
    options, arguments = parser.parse_known_args()
    if options.slice:
        arguments += [f"Lab.test_{name}" for name in SLICE]
    running_time.start()
    begun = running_time.now()
    lab = Deployment(options.folder, options.old or options.baton)
    tell(f"six hosts after {running_time.now() - begun:.1f} s")
    if options.old:
        upgrade.begin(lab, options.baton, options.requests)
        unittest.main(module=upgrade, argv=[sys.argv[0], "-v", *arguments])
    unittest.main(argv=[sys.argv[0], "-v", *arguments])


if __name__ == "__main__":
    main()
