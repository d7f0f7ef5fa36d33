"""Hosts that are network namespaces, each with an address and one link to a bridge, and what happens to links.

Packets vanish in a black hole without a word, as behind a firewall that forgot a flow or a switch that died: carriers
stay up, nobody is told. For a pair of hosts a classic BPF program in tc drops IPv4 by its source where it comes in; for
all of a host its port of the bridge is disabled. A link that is taken down tells its own host alone."""
import contextlib
import ctypes
import http.client
import ipaddress
import os
import pathlib
import socket
import subprocess

LAN = "10.77.0"
CLONE_NEWNET = 0x40000000
BRIDGE = "lan0"
_libc = ctypes.CDLL(None, use_errno=True)


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")


def _enter(namespace):
    if _libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns", namespace.name)


class Network:
    """folder: where the file of names goes. All of it ends with the namespaces that scripts/lab.sh makes around it."""

    def __init__(self, hosts, folder):
        self.addresses = {host: f"{LAN}.{number}" for number, host in enumerate(hosts, start=1)}
        self.names = folder / "hosts"
        self.names.write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {host}\n" for host, address in self.addresses.items()))
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "link", "set", BRIDGE, "up")
        for host, address in self.addresses.items():
            _run("ip", "netns", "add", host)
            _run("ip", "link", "add", f"to-{host}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _run("ip", "link", "set", f"to-{host}", "master", BRIDGE, "up")
            _run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", host, "link", "set", device, "up")
            _run("tc", "-n", host, "qdisc", "add", "dev", "eth0", "clsact")
            self.shape(host, "1gbit")

    def command(self, host, *command):
        """The same command, run on the host, where names of hosts are known. Its process is the one that is started."""
        return ["ip", "netns", "exec", host, "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(self.names),
                *map(str, command)]

    def get(self, host, path, address="127.0.0.1", port=8000, body=None, seconds=30):
        """Body of the answer to a request that comes from the host; OSError where there is none."""
        connection = http.client.HTTPConnection(address, port)
        with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{host}") as there:
            _enter(there)
            try:
                connection.sock = socket.create_connection((address, port), timeout=seconds)
            finally:
                _enter(here)
        with contextlib.closing(connection):
            try:
                connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                told = response.read()
            except http.client.HTTPException as error:
                raise OSError(f"{host} {path}: {error!r}") from None
            if response.status != 200:
                raise OSError(f"{host} {path}: {response.status} {told[:300]}")
            return told

    def shape(self, host, rate):
        """What the host sends: so many bits a second at most."""
        _run("tc", "-n", host, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb",
             "latency", "50ms")

    @contextlib.contextmanager
    def slow(self, host, rate):
        self.shape(host, rate)
        try:
            yield
        finally:
            self.shape(host, "1gbit")

    @contextlib.contextmanager
    def black_hole(self, *ways):
        """ways: pairs (from, to) of hosts; packets of one way vanish, those of the other one pass."""
        filters = []
        try:
            for number, (source, sink) in enumerate(ways, start=1):
                address = int(ipaddress.IPv4Address(self.addresses[source]))
                place = ("dev", "eth0", "ingress", "protocol", "all", "pref", str(number))
                # Is it IPv4, and from that address? Then it is dropped (2), and all else goes on (-1).
                program = f"6,40 0 0 12,21 0 3 2048,32 0 0 26,21 0 1 {address},6 0 0 2,6 0 0 4294967295"
                _run("tc", "-n", sink, "filter", "add", *place, "bpf", "da", "bytecode", program)
                filters.append((sink, place))
            yield
        finally:
            for sink, place in filters:
                _run("tc", "-n", sink, "filter", "del", *place)

    @contextlib.contextmanager
    def port_off(self, host):
        """Nothing passes the host's port of the bridge; its carrier stays."""
        _run("bridge", "link", "set", "dev", f"to-{host}", "state", "0")
        try:
            yield
        finally:
            _run("bridge", "link", "set", "dev", f"to-{host}", "state", "3")

    @contextlib.contextmanager
    def link_down(self, host):
        _run("ip", "-n", host, "link", "set", "eth0", "down")
        try:
            yield
        finally:
            _run("ip", "-n", host, "link", "set", "eth0", "up")


def both_ways(one, other):
    return (one, other), (other, one)
