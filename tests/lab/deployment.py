"""Two routers, two prefill and two decode workers, each on a host of its own (network.py), with mutual TLS between
routers and workers, and KV between workers over TCP."""
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import time

from network import Network

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/cluster"), str(ROOT / "tests/support")]
import running_time
from certificates import Authority

ROUTERS = ("router0", "router1")
WORKERS = ("prefill0", "prefill1", "decode0", "decode1")
CONTROL, METRICS = 7001, 9464


def role_of(name):
    return name.rstrip("0123456789")


def seconds_until(what, condition, seconds=60):
    """How long it takes until the condition holds; a host that does not answer is one where it does not."""
    begun = running_time.now()
    while True:
        is_last = running_time.now() - begun > seconds
        try:
            if condition():
                return running_time.now() - begun
        except OSError:
            pass
        if is_last:
            raise AssertionError(f"waited in vain for {seconds} s: {what}")
        time.sleep(0.01)


class Deployment:
    """folder: an empty one, for keys, logs and packed weights."""

    def __init__(self, folder, baton):
        self.folder, self.baton = folder, baton
        self.network = Network([*ROUTERS, *WORKERS], folder)
        self.programs = {}
        self.key = secrets.token_hex(32)
        self.secret("key", self.key)
        self.trusted = folder / "trusted.pem"
        self.authority = self.new_authority("first")
        self.trust(self.authority)
        self.sign_all()

    def secret(self, name, text):
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(text)

    def new_authority(self, name):
        return Authority(self.folder / name, name)

    def trust(self, *authorities):
        """All hosts trust these from now on; the file changes at once."""
        new = self.folder / "trusted.new"
        new.write_text("".join((each.folder / "ca.pem").read_text() for each in authorities))
        new.rename(self.trusted)

    def sign_all(self):
        """New certificates of all roles by the authority of the day."""
        for role in ("router", "prefill", "decode"):
            self.sign(role, "blue", role)

    def sign(self, name, cluster, role):
        made = self.authority.sign(name, f"/CN={role}", f"URI:baton://{cluster}/{role}")
        for kind in ("key", "pem"):
            new = made.with_suffix(f".{kind}")
            shutil.copy(new, self.folder / f"{name}.{kind}.new")
            (self.folder / f"{name}.{kind}.new").rename(self.folder / f"{name}.{kind}")

    def run(self, log, host, *command):
        """A program on a host in the background."""
        with open(self.folder / f"{log}.log", "ab") as file:
            self.programs[log] = subprocess.Popen(self.network.command(host, *command), stdin=subprocess.DEVNULL,
                                                  stdout=file, stderr=file)

    def common(self, certificate):
        return ("--demo", "--cluster.key_file", self.folder / "key", "--model.weight_cache", self.folder / "cache",
                "--cluster.tls_cert", self.folder / f"{certificate}.pem", "--cluster.tls_key",
                self.folder / f"{certificate}.key", "--cluster.tls_ca", self.trusted)

    def start(self, name, baton=None):
        """baton: another build than that of the others."""
        if role_of(name) == "router":
            # Each request is handed over: else one worker would do all of it where that is sooner.
            self.run(name, name, baton or self.baton, "router", *self.common("router"), "--router.control",
                     f"0.0.0.0:{CONTROL}", "--port", 8000, "--prefill", 2, "--decode", 2, "--router.local=false")
        else:
            self.start_worker(name, name, role_of(name), baton)

    def start_worker(self, name, host, certificate, baton=None, routers=ROUTERS):
        role = role_of(host)
        self.run(name, host, baton or self.baton, role, *self.common(certificate), f"--{role}.threads", 1,
                 "--cluster.router", ",".join(f"{router}:{CONTROL}" for router in routers),
                 "--cluster.worker_name", name,
                 "--cluster.worker_host", self.network.addresses[host],
                 "--cluster.metrics_port", METRICS if name == host else 0)

    def kill(self, name):
        self.programs[name].kill()
        self.programs.pop(name).wait(timeout=30)

    def end(self, name):
        """SIGTERM, as an upgrade does it; returns the exit status."""
        self.tell_to_end(name)
        return self.await_end(name)

    def tell_to_end(self, name):
        self.programs[name].send_signal(signal.SIGTERM)

    def await_end(self, name):
        program = self.programs.pop(name)
        seconds_until(f"{name} ends", lambda: program.poll() is not None)
        return program.returncode

    def pids(self):
        """Of all that run; one that has ended by itself is an error."""
        for name, program in self.programs.items():
            if program.poll() is not None:
                raise AssertionError(f"{name} has ended with {program.returncode}: {self.log(name)[-1500:]}")
        return {name: program.pid for name, program in self.programs.items()}

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def metric(self, name, series):
        """Sum of the series that begin so (a text, or one of several), on the page of a router or worker, which is
        written anew each 250 ms."""
        where = ("127.0.0.1", 8000) if role_of(name) == "router" else (self.network.addresses[name], METRICS)
        page = self.network.get(name, "/metrics", *where, seconds=5).decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(series))

    def workers_of(self, router):
        return self.metric(router, "baton_workers{")

    def routers_of(self, worker):
        return self.metric(worker, "baton_worker_routers{")

    def is_whole(self):
        return all(self.workers_of(router) == len(WORKERS) for router in ROUTERS)
