"""The release that tests install: its chart, names and values."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/baton"
NAMESPACE, RELEASE = "serving", "b"
SMALL = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}
VALUES = {
    "image": {"repository": "localhost/baton", "tag": "1"},
    "model": {"demo": True},
    "server": {"allowUnauthenticated": True},
    "cluster": {"tls": {"secrets": {role: f"tls-{role}" for role in ("router", "prefill", "decode")}}},
    "config": {role: {"threads": 1, "kv_memory": "64MiB"} for role in ("prefill", "decode")},
    "router": {"resources": SMALL, "preStopSeconds": 2},
    "prefill": {"replicas": 2, "resources": SMALL},
    "decode": {"replicas": 1, "resources": SMALL},
}


def changed(values, **roles):
    """values with changes per section: prefill={"replicas": 3}."""
    return {**values, **{role: {**values[role], **change} for role, change in roles.items()}}
