"""Metrics of pods for the API server (custom.metrics.k8s.io): Prometheus, and prometheus-adapter between both."""
import json
import subprocess
import threading

HOST = "10.90.0.1"
NAMESPACE = "monitoring"


class Metrics:
    """Of the pods of one role of a release, while in `with`."""

    def __init__(self, cluster, adapter, namespace, role):
        self.cluster, self.adapter, self.namespace, self.role = cluster, adapter, namespace, role
        self.over = threading.Event()
        self.folder = cluster.folder / "metrics"

    def __enter__(self):
        self.folder.mkdir(exist_ok=True)
        node = self.cluster.nodes[0]
        self._tell_targets()
        (self.folder / "prometheus.json").write_text(json.dumps({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "pods",
                                "file_sd_configs": [{"files": [f"{self.folder}/targets.json"],
                                                     "refresh_interval": "1s"}]}]}))
        node.start("prometheus", "prometheus", f"--config.file={self.folder}/prometheus.json",
                   f"--storage.tsdb.path={self.folder}/data", "--web.listen-address=127.0.0.1:9090")
        # The rule offers every series of a pod under its own name, as the adapter's default does for gauges.
        (self.folder / "adapter.json").write_text(json.dumps({"rules": [{
            "seriesQuery": '{namespace!="",pod!=""}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": "", "as": ""},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"}]}))
        of = self.cluster.certificates
        serving = of.sign("adapter", "/CN=adapter", f"IP:{HOST}")
        node.start("adapter", self.adapter, "--secure-port=6444", f"--bind-address={HOST}",
                   f"--lister-kubeconfig={self.cluster.admin}", f"--authentication-kubeconfig={self.cluster.admin}",
                   f"--authorization-kubeconfig={self.cluster.admin}", f"--tls-cert-file={serving}.pem",
                   f"--tls-private-key-file={serving}.key", f"--config={self.folder}/adapter.json",
                   "--prometheus-url=http://127.0.0.1:9090", "--metrics-relist-interval=5s")
        ports = [{"name": "api", "protocol": "TCP", "port": 443, "targetPort": 6444}]
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter", "namespace": NAMESPACE},
             "spec": {"ports": ports}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": {"name": "adapter-1", "namespace": NAMESPACE,
                          "labels": {"kubernetes.io/service-name": "adapter"}},
             "endpoints": [{"addresses": [HOST]}], "ports": [{"name": "api", "protocol": "TCP", "port": 6444}]},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
             "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
             "spec": {"group": "custom.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                      "versionPriority": 100, "insecureSkipTLSVerify": True,
                      "service": {"name": "adapter", "namespace": NAMESPACE, "port": 443}}})
        self.cluster.wait("the API of metrics",
                          lambda: self.cluster.kubectl("get", "--raw=/apis/custom.metrics.k8s.io/v1beta1"), seconds=60)
        self.teller = threading.Thread(target=self._tell_on)
        self.teller.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.teller.join()
        self.cluster.kubectl("delete", "apiservice", "v1beta1.custom.metrics.k8s.io")
        self.cluster.nodes[0].end("adapter")
        self.cluster.nodes[0].end("prometheus")

    def _tell_on(self):
        """Debian's Prometheus does not know Kubernetes: it is told the pods by a file."""
        while not self.over.wait(2):
            self._tell_targets()

    def _tell_targets(self):
        try:
            pods = self.cluster.get("-n", self.namespace, "pods", "-l", f"app.kubernetes.io/component={self.role}")
        except (self.cluster.Error, subprocess.SubprocessError):
            return  # those before stay
        new = self.folder / "targets.new"
        new.write_text(json.dumps([
            {"targets": [f"{pod['status']['podIP']}:9464"],
             "labels": {"namespace": self.namespace, "pod": pod["metadata"]["name"]}}
            for pod in pods["items"] if pod["status"].get("podIP")]))
        new.rename(self.folder / "targets.json")
