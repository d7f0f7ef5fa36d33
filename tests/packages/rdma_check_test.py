"""tools/rdma_check.sh with made-up devices: what it finds and what it says to change. No machine of the tests has RDMA, so
what ib_write_bw and ucx_perftest print is not tried.

rdma_check_test.py --baton FILE
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/rdma_check.sh"
options = None


class RdmaCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.net = pathlib.Path(folder.name) / "ib", pathlib.Path(folder.name) / "net"
        self.root.mkdir()
        self.net.mkdir()

    def device(self, name, layer="InfiniBand", state="4: ACTIVE", gids=()):
        port = self.root / name / "ports/1"
        (port / "gid_attrs/types").mkdir(parents=True)
        (port / "gids").mkdir()
        for file, text in (("state", state), ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", layer)):
            (port / file).write_text(text + "\n")
        for index, (kind, gid) in enumerate(gids):
            (port / f"gid_attrs/types/{index}").write_text(kind + "\n")
            (port / f"gids/{index}").write_text(gid + "\n")

    def card(self, name, mtu):
        (self.net / name / "device/infiniband").mkdir(parents=True)
        (self.net / name / "mtu").write_text(f"{mtu}\n")

    def check(self, *arguments, memlock="unlimited"):
        environment = dict(os.environ, RDMA_ROOT=str(self.root), RDMA_NET_ROOT=str(self.net), RDMA_MEMLOCK=memlock)
        run = subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120, env=environment)
        return run.returncode, run.stdout + run.stderr

    def test_a_host_that_is_well(self):
        self.device("mlx5_0")
        self.device("mlx5_1", "Ethernet", gids=[("IB/RoCE v1", "fe80::1"),
                                                ("RoCE v2", "0000:0000:0000:0000:0000:ffff:0a14:0003")])
        self.card("ib0", 4092)
        status, text = self.check()
        self.assertEqual(status, 0, text)
        self.assertIn("mlx5_0 port 1: InfiniBand, 400 Gb/sec (4X NDR), ACTIVE", text)
        self.assertIn("mlx5_1: index 1 is RoCE v2 over IPv4", text)
        self.assertIn("ib0: 4092", text)

    def test_what_must_be_changed(self):
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("no RDMA card, or its driver is not loaded", text)
        self.device("mlx5_0", state="1: DOWN")
        self.device("mlx5_1", "Ethernet", gids=[("RoCE v2", "fe80:0000:0000:0000:0000:0000:0000:0001")])
        self.card("eth1", 1500)
        status, text = self.check(memlock="64")
        self.assertEqual(status, 1)
        for words in ("mlx5_0 port 1: InfiniBand, state 1: DOWN: cable, switch port", "mlx5_1: no RoCE v2 GID over IPv4",
                      "64 KiB: RDMA registers the whole KV pool", "eth1: 1500; 9000 (RoCE)"):
            self.assertIn(words, text)

    def test_rates_beside_each_other(self):
        _, text = self.check("compare", "98.0", "11000", "2900")
        self.assertIn("ib_write_bw 98.0 Gbit/s", text)
        self.assertIn("ok    ucx rdma     92.3 Gbit/s, 94 % of ib_write_bw", text)
        self.assertIn("ucx tcp      24.3 Gbit/s", text)
        self.assertIn("RDMA carries 4.0 times that", text)
        _, text = self.check("compare", "98.0", "3000", "")
        self.assertIn("note  ucx rdma     25.2 Gbit/s, 26 % of ib_write_bw: look at UCX_NET_DEVICES", text)
        _, text = self.check("compare", "", "", "")
        self.assertIn("not measured", text)

    def test_a_request_is_served(self):
        self.device("mlx5_0")
        _, text = self.check("run", "127.0.0.1", options.baton)
        self.assertIn("ok    request      served, KV by 127.0.0.1", text)
        _, text = self.check("run", "127.0.0.1", "/no/such/program")
        self.assertIn("no /no/such/program: give the binary", text)

    def test_wrong_arguments(self):
        self.assertEqual(self.check("run")[0], 2)
        self.assertEqual(self.check("nonsense")[0], 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
