"""A node: a box of namespaces (node.sh) with containerd, kubelet and kube-proxy."""
import json
import os
import pathlib
import signal
import subprocess

NODE_SH = pathlib.Path(__file__).resolve().parent / "node.sh"

CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
"""


class Node:
    """folder: of this node alone, below that of the cluster. number: 1, 2, ..., the last byte of its address."""

    def __init__(self, name, number, folder):
        self.name, self.number, self.folder = name, number, folder
        self.address = f"10.90.0.{number}"
        self.pods = f"10.91.{number - 1}.0/24"
        self.programs = []
        folder.mkdir(parents=True)
        started = subprocess.run([NODE_SH, "start", name, folder, self.address], capture_output=True, text=True,
                                 timeout=60)
        if started.returncode != 0:
            raise RuntimeError(f"no box for {name}: {started.stderr}")
        self.box = int(started.stdout)

    def command(self, *command):
        """The same command, run in the box."""
        return [str(NODE_SH), "enter", str(self.box), *map(str, command)]

    def run(self, *command, timeout=60, **options):
        return subprocess.run(self.command(*command), check=True, capture_output=True, text=True, timeout=timeout,
                              **options)

    def start(self, name, *command):
        """A program of the node in the background; its lines go to NAME.log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            self.programs.append((name, subprocess.Popen(self.command(*command), stdin=subprocess.DEVNULL, stdout=log,
                                                         stderr=log)))

    def end(self, name):
        """Kills a program: the child of what entered the box for it."""
        for each in [each for each in self.programs if each[0] == name]:
            self.programs.remove(each)
            subprocess.run(["pkill", "-KILL", "-P", str(each[1].pid)], timeout=10)
            each[1].wait(timeout=30)

    def check(self):
        """Raises if one of the programs has ended."""
        for name, program in self.programs:
            if program.poll() is not None:
                log = (self.folder / f"{name}.log").read_text()
                raise RuntimeError(f"{name} of {self.name} has ended: {log[-3000:]}")

    def start_containerd(self):
        cni = self.folder / "cni"
        cni.mkdir()
        (cni / "10-pods.conflist").write_text(json.dumps({
            "cniVersion": "1.0.0", "name": "pods",
            "plugins": [
                {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
                 "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": self.pods}]],
                          "routes": [{"dst": "0.0.0.0/0"}]}},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ]}))
        config = self.folder / "containerd.toml"
        config.write_text(CONTAINERD.format(folder=self.folder))
        self.start("containerd", "containerd", "--config", config)

    def start_kubelet(self, programs, kubeconfig, authority, certificate):
        """certificate: the path of the kubelet's own, without .pem and .key."""
        resolv = self.folder / "resolv.conf"
        resolv.write_text("nameserver 10.90.0.1\n")
        config = self.folder / "kubelet.json"
        config.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs", "failCgroupV1": False, "failSwapOn": False,
            "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local", "resolvConf": str(resolv),
            "authentication": {"x509": {"clientCAFile": str(authority)}, "anonymous": {"enabled": False}},
            "tlsCertFile": f"{certificate}.pem", "tlsPrivateKeyFile": f"{certificate}.key",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "podLogsDir": str(self.folder / "pods"), "nodeStatusUpdateFrequency": "3s",
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
                             "nodefs.inodesFree": "1%"},
            "imageGCHighThresholdPercent": 100, "serializeImagePulls": False, "runtimeRequestTimeout": "2m"}))
        self.start("kubelet", programs / "kubelet", f"--config={config}", f"--root-dir={self.folder / 'kubelet'}",
                   f"--kubeconfig={kubeconfig}", f"--node-ip={self.address}", f"--hostname-override={self.name}")

    def start_proxy(self, programs, kubeconfig):
        config = self.folder / "proxy.json"
        config.write_text(json.dumps({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": str(kubeconfig)}, "clusterCIDR": "10.91.0.0/16",
            "hostnameOverride": self.name,
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"}}))
        self.start("kube-proxy", programs / "kube-proxy", f"--config={config}")

    def import_image(self, tar):
        self.run("ctr", "-n", "k8s.io", "images", "import", tar, timeout=120)

    def kill(self):
        """Like the loss of power."""
        try:
            os.kill(self.box, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for _, program in self.programs:
            program.wait(timeout=30)
        self.programs.clear()
        subprocess.run([NODE_SH, "remove", self.name], timeout=60)
