"""The certificates of a cluster, by an authority of its own, and the files by which programs reach its API server."""
import json
import subprocess

API = "https://10.90.0.1:6443"
HOST = "10.90.0.1"  # node 1, which has the control plane, too


class Authority:
    """Signs certificates; its own is ca.pem in the folder, which it makes."""

    def __init__(self, folder, name):
        self.folder = folder
        folder.mkdir()
        self._openssl("req", "-x509", *self._new_key("ca"), "-days", "2", "-subj", f"/CN={name}", "-out", "ca.pem")

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=30)

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")

    def sign(self, name, subject, names="", authority="ca", days=2):
        """Makes NAME.pem and NAME.key; returns their path without the ending."""
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={names}\n" if names else "")
        self._openssl("req", *self._new_key(name), "-subj", subject, "-out", f"{name}.csr")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                      "-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        return self.folder / name


class Certificates(Authority):
    """Those of a Kubernetes cluster."""

    def __init__(self, folder):
        super().__init__(folder, "test cluster")
        for name, subject, names in (
                ("apiserver", "/CN=kube-apiserver", f"IP:{HOST},IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc"),
                ("admin", "/O=system:masters/CN=admin", ""),
                ("controllers", "/CN=system:kube-controller-manager", ""),
                ("scheduler", "/CN=system:kube-scheduler", ""),
                ("proxy", "/CN=system:kube-proxy", ""),
                ("front-proxy", "/CN=front-proxy", "")):
            self.sign(name, subject, names)
        self._openssl("genrsa", "-out", "accounts.key", "2048")
        self._openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")

    def kubeconfig(self, name, api=API):
        """The file with which a program speaks to the API server as NAME."""
        file = self.folder / f"{name}.kubeconfig"
        file.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": api,
                                                      "certificate-authority": str(self.folder / "ca.pem")}}],
            "users": [{"name": name, "user": {"client-certificate": str(self.folder / f"{name}.pem"),
                                              "client-key": str(self.folder / f"{name}.key")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}]}))
        return file
