"""Clients on a router's host of the lab, and what is told of a run."""
from clients import Clients


def tell(text):
    print(f"    {text}", flush=True)


class Load(Clients):
    """All loads of a lab expect the same texts."""

    def __init__(self, lab, router="router0", n_clients=8):
        self.lab, self.router, self.n_clients = lab, router, n_clients
        super().__init__(lab.network.command(router), "http://127.0.0.1:8000", n_clients, lab.folder / "texts")

    def __enter__(self):
        super().__enter__()
        self.failovers = -self.lab.metric(self.router, "baton_failovers_total{")
        return self

    def __exit__(self, kind, *_):
        super().__exit__()
        told = ""
        if kind is None and self.router in self.lab.programs:
            self.failovers += self.lab.metric(self.router, "baton_failovers_total{")
            told = f"{self.failovers:.0f} failovers, "
        tell(f"{self.router}: {self.result['right']} requests right, {self.result['failed']} failed, "
             f"{self.result['wrong']} wrong, {self.result['unanswered']} unanswered, {told}longest pause "
             f"{self.result['pause']:.1f} s")
        for why, n in self.result["why"].items():
            tell(f"  {n}: {why}")

    def n_answered(self):
        """Requests that the router has answered since its start."""
        return self.lab.metric(self.router, "vllm:request_success_total{")


def assert_all_right(test, load, at_least):
    test.assertEqual([load.result[each] for each in ("failed", "wrong", "refused", "unanswered")], [0, 0, 0, 0],
                     load.result["why"])
    test.assertGreaterEqual(load.result["right"], at_least)
