"""Two builds of Baton in one cluster of the lab, an older one and this one, as in an upgrade (scripts/lab.sh --old).
Where both speak the same wire, workers are exchanged one by one under load, towards the new build, back and again.
Where they do not, each router refuses the other build's workers and says what to change, while its own serve on; then
a second set of the new build takes over beside the old one. Either way no request fails."""
import subprocess
import unittest

from deployment import ROUTERS, WORKERS, role_of, seconds_until
from lab_load import Load, assert_all_right, tell

# Messages that refuse a worker end with one of these, at the router and at the worker.
ADVICE = ("run the same version of baton everywhere", "start them with the same model, build and KV settings")
lab = new = None
n_requests = 0


def begin(deployment, new_build, requests):
    """deployment: of the old build. requests: that each part is held to answer, at least."""
    global lab, new, n_requests
    lab, new, n_requests = deployment, new_build, requests


def version_of(baton):
    return subprocess.run([baton, "--version"], capture_output=True, text=True, timeout=30).stdout.strip()


def start(worker, baton, routers=("router0",), name=None):
    lab.start_worker(name or worker, worker, role_of(worker), baton, routers)


def is_refused(log):
    return any(advice in lab.log(log) for advice in ADVICE)


class Upgrade(unittest.TestCase):
    def test_builds_share_a_cluster(self):
        """Old workers dial one router: builds before control wire 11 take no list."""
        old = lab.baton
        tell(f"old: {version_of(old)}; new: {version_of(new)}")
        lab.start("router0")
        for worker in WORKERS:
            start(worker, old)
        seconds_until("the old workers", lambda: lab.workers_of("router0") == len(WORKERS))
        start("decode1", new, name="newcomer")
        seconds_until("the old router takes a new worker or refuses it",
                      lambda: lab.workers_of("router0") > len(WORKERS) or is_refused("newcomer"))
        fits = not is_refused("newcomer")
        lab.kill("newcomer")
        seconds_until("it has gone", lambda: lab.workers_of("router0") == len(WORKERS))
        if fits:
            tell("both speak the same wire: workers are exchanged one by one")
            self.exchange_one_by_one(old)
        else:
            self.assertTrue(is_refused("newcomer"))
            tell(f"the old router does not take the new worker: {self.last_refusal('newcomer')}")
            self.take_over_beside(old)

    def last_refusal(self, log):
        return [line for line in lab.log(log).splitlines() if any(advice in line for advice in ADVICE)][-1]

    def exchange_one_by_one(self, old):
        for n_round, (router, workers) in enumerate([("old", new), ("new", old), ("new", new)]):
            if n_round == 1:  # between loads: those of a single router's streams end with it
                self.assertEqual(lab.end("router0"), 0)
                lab.start("router0", new)
                seconds_until("the new router", lambda: lab.workers_of("router0") == len(WORKERS))
            with Load(lab) as load:
                begun = load.n_answered()
                for worker in WORKERS:
                    self.assertEqual(lab.end(worker), 0)
                    start(worker, workers)
                    seconds_until(f"{worker} joins", lambda: lab.workers_of("router0") == len(WORKERS))
                seconds_until("requests", lambda: load.n_answered() - begun >= n_requests, 3600)
            tell(f"{router} router, workers exchanged for {'new' if workers is new else 'old'} ones")
            assert_all_right(self, load, max(20, n_requests))

    def take_over_beside(self, old):
        lab.start("router1", new)
        with Load(lab) as of_old:
            for worker in WORKERS:
                start(worker, new, ROUTERS, name=f"new-{worker}")
            seconds_until("the new workers at the new router", lambda: lab.workers_of("router1") == len(WORKERS))
            for worker in WORKERS:
                seconds_until("the old router refuses each", lambda: is_refused(f"new-{worker}"))
            with Load(lab, "router1") as of_new:
                # A worker of the old build at the new router, beside those that it has.
                start("decode1", old, ("router1",), name="stray")
                seconds_until("the new router refuses the old worker", lambda: is_refused("router1"))
                seconds_until("the old worker says so, too", lambda: is_refused("stray"))
                tell(f"the new router does not take the old worker: {self.last_refusal('router1')}")
                if "wire_version" in self.last_refusal("router1"):
                    self.assertGreaterEqual(lab.metric(
                        "router1", 'baton_workers_refused_total{reason="other_version"'), 1)
                lab.kill("stray")
                for router in ROUTERS:
                    self.assertEqual(lab.workers_of(router), len(WORKERS))
                begun = of_new.n_answered()
                seconds_until("requests", lambda: of_new.n_answered() - begun >= n_requests, 3600)
        assert_all_right(self, of_old, max(20, n_requests))
        assert_all_right(self, of_new, max(20, n_requests))
        with Load(lab, "router1") as load:  # clients have moved: the old ones end
            begun = load.n_answered()
            for name in (*WORKERS, "router0"):
                self.assertEqual(lab.end(name), 0)
            seconds_until("requests", lambda: load.n_answered() - begun >= 20)
        assert_all_right(self, load, 20)
        tell("the old workers and their router have ended")
