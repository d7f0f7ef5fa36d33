"""What each value of values.yaml does to the objects: path of the value, other values, what must hold.

A test compares the paths with values.yaml, so that no value goes without a case. The chart that is rendered has a
dashboard and a group of rules of the test's own beside those of the repository.
"""
from collections import namedtuple

Case = namedtuple("Case", "path value holds others")
CASES = []
WORKERS = ("prefill", "decode")


def case(path, value, holds, **others):
    """others: a.b is written a__b."""
    CASES.append(Case(path, value, holds, {key.replace("__", "."): each for key, each in others.items()}))


# --- names, image ---------------------------------------------------------------------------------
case("nameOverride", "lark", lambda r: r.names("Deployment") == ["r-lark-router"]
     and r.workload("router")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == "lark")
case("fullnameOverride", "blue-baton", lambda r: r.names("StatefulSet") == ["blue-baton-decode", "blue-baton-prefill"])
case("image.repository", "registry.example/b", lambda r: r.container("decode")["image"] == "registry.example/b:0.1.0")
case("image.tag", "9.9", lambda r: all(r.container(role)["image"] == "baton:9.9" for role in r.roles()))
case("image.digest", "sha256:" + "a" * 64, lambda r: r.container("router")["image"] == "baton@sha256:" + "a" * 64)
case("image.pullPolicy", "Always", lambda r: r.container("prefill")["imagePullPolicy"] == "Always")
case("image.pullSecrets", ["one"], lambda r: r.pod("decode")["imagePullSecrets"] == [{"name": "one"}])

# --- model ----------------------------------------------------------------------------------------
case("model.demo", True, lambda r: all("--demo" in r.args(role) for role in r.roles())
     and "path" not in r.settings()["model"])
case("model.path", "/models/m", lambda r: r.settings()["model"]["path"] == "/models/m"
     and all("--demo" not in r.args(role) for role in r.roles()), model__demo=False)
case("model.name", "lark", lambda r: r.settings()["model"]["name"] == "lark")
case("model.hfCache", "/models/hub", lambda r: r.settings()["model"]["hf_cache"] == "/models/hub")
case("model.volume.claim", "shared", lambda r: all(
    r.volume(role, "models")["persistentVolumeClaim"] == {"claimName": "shared", "readOnly": True}
    and r.mount(role, "models")["readOnly"] for role in r.roles()))
case("model.volume.hostPath", "/srv/models", lambda r: r.volume("router", "models")["hostPath"]["path"] == "/srv/models")
case("model.volume.create", True, lambda r: r.one("PersistentVolumeClaim")["metadata"]["name"] == "r-baton-models"
     and r.one("PersistentVolumeClaim")["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
     and r.volume("decode", "models")["persistentVolumeClaim"]["claimName"] == "r-baton-models")
case("model.volume.size", "7Gi", lambda r: r.one("PersistentVolumeClaim")["spec"]["resources"]["requests"]["storage"]
     == "7Gi", model__volume__create=True)
case("model.volume.storageClass", "fast", lambda r: r.one("PersistentVolumeClaim")["spec"]["storageClassName"] == "fast",
     model__volume__create=True)
case("model.volume.accessModes", ["ReadWriteMany"], lambda r: r.one("PersistentVolumeClaim")["spec"]["accessModes"]
     == ["ReadWriteMany"], model__volume__create=True)
PULL = {"model__pull__enabled": True, "model__demo": False, "model__path": "org/m@v1", "model__hfCache": "/models/hub",
        "model__volume__claim": "c"}
job = lambda r: r.one("Job")["spec"]["template"]["spec"]
job_args = lambda r: job(r)["containers"][0]["args"]
case("model.pull.enabled", True, lambda r: not job(r)["volumes"][0]["persistentVolumeClaim"]["readOnly"]
     and job(r)["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
     and job(r)["containers"][0]["image"] == r.container("decode")["image"]
     and job_args(r) == ["pull", "org/m@v1", "--hub=https://huggingface.co", "--hf-cache=/models/hub", "--parallel=4"]
     and r.settings()["model"]["path"] == "org/m@v1" and r.settings()["model"]["hf_cache"] == "/models/hub", **PULL)
case("model.pull.hub", "https://mirror", lambda r: "--hub=https://mirror" in job_args(r), **PULL)
case("model.pull.include", ["*.gguf", "a b"], lambda r: job_args(r)[-2:] == ["--include=*.gguf", "--include=a b"], **PULL)
case("model.pull.parallel", 9, lambda r: "--parallel=9" in job_args(r), **PULL)
case("model.pull.tokenSecret", "hub-token", lambda r: job(r)["volumes"][-1]["secret"]
     == {"secretName": "hub-token", "defaultMode": 0o440} and job(r)["containers"][0]["volumeMounts"][-1]["mountPath"]
     == "/etc/baton/hub-token" and job_args(r)[-1] == "--token-file=/etc/baton/hub-token/token", **PULL)
case("model.pull.backoffLimit", 2, lambda r: r.one("Job")["spec"]["backoffLimit"] == 2, **PULL)
case("model.pull.resources", {"limits": {"memory": "1Gi"}},
     lambda r: job(r)["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}, **PULL)
case("config", {"decode": {"max_batch": 7}, "server": {"port": 1, "max_choices": 3}},
     lambda r: r.settings()["decode"]["max_batch"] == 7 and r.settings()["server"]["max_choices"] == 3
     and r.settings()["server"]["port"] == 8000)

# --- cluster --------------------------------------------------------------------------------------
MANAGER = {"cluster__tls__certManager__enabled": True,
           "cluster__tls__secrets": {"router": "", "prefill": "", "decode": ""}}
certificate = lambda r, role: r.one("Certificate", "-" + role)["spec"]
case("cluster.name", "blue", lambda r: [certificate(r, role)["uris"] for role in r.roles()]
     == [[f"baton://blue/{role}"] for role in r.roles()], **MANAGER)
case("cluster.colocated", True, lambda r: r.names("StatefulSet") == ["r-baton-decode"]
     and r.settings()["cluster"]["colocated"] is True and certificate(r, "decode")["uris"] == ["baton://r-baton/both"]
     and r.names("PodDisruptionBudget") == ["r-baton-decode", "r-baton-router"], **MANAGER)
case("cluster.key.secret", "mine", lambda r: r.names("Secret") == [] and all(
    r.volume(role, "cluster-key")["secret"]["secretName"] == "mine" for role in r.roles()))
case("cluster.key.secretKey", "hex", lambda r: list(r.one("Secret")["data"]) == ["hex"]
     and r.volume("router", "cluster-key")["secret"]["items"] == [{"key": "hex", "path": "key"}])
for role in ("router",) + WORKERS:
    case(f"cluster.tls.secrets.{role}", "other", lambda r, role=role: [
        each for each in r.roles() if r.volume(each, "cluster-tls")["secret"]["secretName"] == "other"] == [role])
case("cluster.tls.certManager.enabled", True, lambda r: r.names("Issuer") == ["r-baton-ca", "r-baton-self-signed"]
     and all(certificate(r, role)["secretName"] == r.volume(role, "cluster-tls")["secret"]["secretName"]
             for role in r.roles())
     and certificate(r, "router")["usages"] == ["digital signature", "server auth"]
     and certificate(r, "decode")["usages"] == ["digital signature", "client auth"], **MANAGER)
case("cluster.tls.certManager.issuer.name", "corp", lambda r: r.names("Issuer") == []
     and certificate(r, "router")["issuerRef"] == {"name": "corp", "kind": "Issuer", "group": "cert-manager.io"},
     **MANAGER)
case("cluster.tls.certManager.issuer.kind", "ClusterIssuer", lambda r: certificate(r, "decode")["issuerRef"]["kind"]
     == "ClusterIssuer", cluster__tls__certManager__issuer__name="corp", **MANAGER)
case("cluster.tls.certManager.issuer.group", "awspca.cert-manager.io", lambda r: certificate(r, "decode")["issuerRef"]
     ["group"] == "awspca.cert-manager.io", cluster__tls__certManager__issuer__name="corp", **MANAGER)
case("cluster.tls.certManager.duration", "48h", lambda r: certificate(r, "decode")["duration"] == "48h", **MANAGER)
case("cluster.tls.certManager.renewBefore", "8h", lambda r: certificate(r, "decode")["renewBefore"] == "8h", **MANAGER)

# --- server ---------------------------------------------------------------------------------------
case("server.host", "::", lambda r: r.settings()["server"]["host"] == "::")
case("server.port", 8080, lambda r: r.settings()["server"]["port"] == 8080 and r.ports("router")["http"] == 8080)
case("server.grpcPort", 8001, lambda r: r.settings()["server"]["grpc_port"] == 8001
     and r.ports("router")["grpc"] == 8001 and r.one("Service", "baton")["spec"]["ports"][1]["port"] == 8001,
     server__tls__enabled=True, server__tls__secret="web")
case("server.apiKeys.secret", "other", lambda r: all(
    r.volume(role, "api-keys")["secret"]["secretName"] == "other" for role in r.roles())
    and r.settings()["server"]["api_key_file"] == "/etc/baton/api-keys/keys")
case("server.apiKeys.secretKey", "file", lambda r: r.volume("router", "api-keys")["secret"]["items"]
     == [{"key": "file", "path": "keys"}])
case("server.allowUnauthenticated", True, lambda r: r.settings()["server"]["allow_unauthenticated"] is True
     and "api_key_file" not in r.settings()["server"] and r.volume("router", "api-keys") is None
     and all("authorization" not in endpoint(r, name) for name in ("router", "workers")),
     server__apiKeys__secret="", metrics__podMonitor__enabled=True)
WEB = {"server__tls__secret": "web"}
case("server.tls.enabled", True, lambda r: r.settings()["server"]["tls_cert"] == "/etc/baton/server-tls/tls.crt"
     and r.container("router")["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
     and r.container("decode")["livenessProbe"]["httpGet"]["scheme"] == "HTTP", **WEB)
case("server.tls.secret", "other", lambda r: r.volume("router", "server-tls")["secret"]["secretName"] == "other"
     and r.volume("decode", "server-tls") is None, server__tls__enabled=True)
case("server.service.type", "LoadBalancer", lambda r: r.one("Service", "baton")["spec"]["type"] == "LoadBalancer")
case("server.service.port", 8443, lambda r: r.one("Service", "baton")["spec"]["ports"][0]["port"] == 8443)
case("server.service.annotations", {"a": "b"}, lambda r: r.one("Service", "baton")["metadata"]["annotations"]
     == {"a": "b"})

# --- the roles ------------------------------------------------------------------------------------
case("router.replicas", 3, lambda r: r.workload("router")["spec"]["replicas"] == 3
     and r.workload("router")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
     and r.one("Service", "baton-routers")["spec"]["clusterIP"] == "None"
     and r.one("Service", "baton-routers")["spec"]["publishNotReadyAddresses"])
case("server.service.sessionAffinity", "ClientIP",
     lambda r: r.one("Service", "baton")["spec"]["sessionAffinity"] == "ClientIP")
case("router.controlPort", 7777, lambda r: r.settings()["router"]["control"] == "0.0.0.0:7777"
     and r.settings()["cluster"]["router"] == "r-baton-routers:7777"
     and r.one("Service", "routers")["spec"]["ports"][0]["port"] == 7777)
case("router.preStopSeconds", 9, lambda r: r.container("router")["lifecycle"]["preStop"]["sleep"]["seconds"] == 9
     and r.pod("router")["terminationGracePeriodSeconds"] == 9 + 120 + 10)
SPREAD = [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
TOLERATION = [{"key": "llm", "operator": "Exists"}]
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}}
for role in ("router",) + WORKERS:
    def of(name, value, holds, role=role, **others):
        case(f"{role}.{name}", value, lambda r, role=role, holds=holds: holds(r, role), **others)
    of("shutdownSeconds", 33, lambda r, role: "--server.shutdown_timeout=33s" in r.args(role)
       and r.pod(role)["terminationGracePeriodSeconds"] == 33 + 10 + (5 if role == "router" else 0))
    of("startupSeconds", 52, lambda r, role: r.container(role)["startupProbe"]["failureThreshold"] == 11)
    of("resources", {"limits": {"memory": "9Gi", "cpu": 9}, "requests": {"memory": "9Gi"}},
       lambda r, role: r.container(role)["resources"]["limits"]["memory"] == "9Gi")
    of("priorityClassName", "high", lambda r, role: r.pod(role)["priorityClassName"] == "high")
    of("nodeSelector", {"disk": "ssd"}, lambda r, role: r.pod(role)["nodeSelector"] == {"disk": "ssd"})
    of("tolerations", TOLERATION, lambda r, role: r.pod(role)["tolerations"] == TOLERATION)
    of("affinity", AFFINITY, lambda r, role: r.pod(role)["affinity"] == AFFINITY)
    of("topologySpread", SPREAD, lambda r, role: r.pod(role)["topologySpreadConstraints"] == SPREAD)
    of("podAnnotations", {"a": "b"},
       lambda r, role: r.workload(role)["spec"]["template"]["metadata"]["annotations"]["a"] == "b")
    of("podLabels", {"team": "x"},
       lambda r, role: r.workload(role)["spec"]["template"]["metadata"]["labels"]["team"] == "x")
    of("extraArgs", ["--log.level=debug"], lambda r, role: r.args(role)[-1] == "--log.level=debug")
    of("extraEnv", [{"name": "A", "value": "b"}],
       lambda r, role: {"name": "A", "value": "b"} in r.container(role)["env"])
    of("pdb.enabled", False, lambda r, role: f"r-baton-{role}" not in r.names("PodDisruptionBudget"))
    of("pdb.maxUnavailable", "25%", lambda r, role: r.one("PodDisruptionBudget", role)["spec"]["maxUnavailable"]
       == "25%")
    if role == "router":
        continue
    of("replicas", 5, lambda r, role: r.workload(role)["spec"]["replicas"] == 5)
    of("gpu.count", 1, lambda r, role: r.container(role)["resources"]["limits"]["nvidia.com/gpu"] == 1
       and "--model.device=cuda" in r.container(role)["args"])
    of("gpu.resource", "amd.com/gpu", lambda r, role: r.container(role)["resources"]["limits"]["amd.com/gpu"] == 1,
       **{f"{role}__gpu__count": 1})
    of("rdma.count", 1,
       lambda r, role: r.container(role)["resources"]["limits"]["rdma/hca_shared_devices_a"] == 1
       and "add" not in r.container(role)["securityContext"]["capabilities"])
    of("rdma.resource", "rdma/ib", lambda r, role: r.container(role)["resources"]["limits"]["rdma/ib"] == 1,
       **{f"{role}__rdma__count": 1})
    of("rdma.ipcLock", True, lambda r, role: r.container(role)["securityContext"]["capabilities"]
       == {"drop": ["ALL"], "add": ["IPC_LOCK"]})
    of("hugepages.amount", "2Gi", lambda r, role: r.container(role)["resources"]["limits"]["hugepages-2Mi"] == "2Gi"
       and r.container(role)["resources"]["requests"]["hugepages-2Mi"] == "2Gi"
       and r.mount(role, "hugepages")["mountPath"] == "/dev/hugepages")
    of("hugepages.size", "1Gi", lambda r, role: r.volume(role, "hugepages")["emptyDir"]["medium"] == "HugePages-1Gi",
       **{f"{role}__hugepages__amount": "4Gi"})
    of("shm.size", "3Gi", lambda r, role: r.volume(role, "shm")["emptyDir"] == {"medium": "Memory", "sizeLimit": "3Gi"}
       and r.mount(role, "shm")["mountPath"] == "/dev/shm")
    of("weightCache.size", "8Gi", lambda r, role: r.volume(role, "cache")["emptyDir"] == {"sizeLimit": "8Gi"}
       and r.settings()["model"]["weight_cache"].startswith(r.mount(role, "cache")["mountPath"] + "/"))
    of("weightCache.hostPath", "/var/cache/b",
       lambda r, role: r.volume(role, "cache")["hostPath"]["path"] == "/var/cache/b")
    hpa = {f"{role}__autoscaling__kind": "hpa"}
    keda = {f"{role}__autoscaling__kind": "keda", f"{role}__autoscaling__prometheus": "http://p:9090"}
    scaler = lambda r, role: r.one("HorizontalPodAutoscaler", role)["spec"]
    scaled = lambda r, role: r.one("ScaledObject", role)["spec"]
    trigger = lambda r, role: scaled(r, role)["triggers"][0]["metadata"]
    of("autoscaling.kind", "hpa", lambda r, role: scaler(r, role)["scaleTargetRef"]["name"] == f"r-baton-{role}"
       and "replicas" not in r.workload(role)["spec"] and len(r.all("HorizontalPodAutoscaler")) == 1)
    of("autoscaling.prometheus", "http://other:9090", lambda r, role: trigger(r, role)["serverAddress"]
       == "http://other:9090" and "replicas" not in r.workload(role)["spec"], **keda)
    of("autoscaling.minReplicas", 2, lambda r, role: scaler(r, role)["minReplicas"] == 2, **hpa)
    of("autoscaling.maxReplicas", 9, lambda r, role: scaler(r, role)["maxReplicas"] == 9, **hpa)
    of("autoscaling.metric", "baton_kv_pages_promised",
       lambda r, role: scaler(r, role)["metrics"][0]["pods"]["metric"]["name"] == "baton_kv_pages_promised", **hpa)
    of("autoscaling.target", 12.5, lambda r, role: trigger(r, role)["threshold"] == "12.5", **keda)
    of("autoscaling.query", 'sum(up{x="y"})', lambda r, role: trigger(r, role)["query"] == 'sum(up{x="y"})', **keda)
    of("autoscaling.scaleDownSeconds", 60, lambda r, role: scaler(r, role)["behavior"]["scaleDown"]
       ["stabilizationWindowSeconds"] == 60, **hpa)

# --- KV, metrics, network -------------------------------------------------------------------------
case("kvtransfer.firstPort", 7300, lambda r: r.settings()["kvtransfer"]["ports"] == "7300-7301"
     and [r.ports("decode")[name] for name in ("kv0", "kv1")] == [7300, 7301])
case("kvtransfer.allowedCidrs", "10.0.0.0/8", lambda r: r.settings()["kvtransfer"]["allowed_cidrs"] == "10.0.0.0/8")
case("kvtransfer.trustedCidrs", "10.0.0.0/8", lambda r: r.settings()["kvtransfer"]["trusted_cidrs"]
     == "127.0.0.0/8,10.0.0.0/8")
case("kvtransfer.transport", "rdma", lambda r: r.settings()["kvtransfer"]["transport"] == "rdma")
case("metrics.port", 9999, lambda r: r.settings()["server"]["metrics_port"] == 9999
     and r.settings()["cluster"]["metrics_port"] == 9999 and all(r.ports(role)["metrics"] == 9999 for role in r.roles()))
MONITOR = {"metrics__podMonitor__enabled": True, "metrics__apiKey__secret": "prom"}
endpoint = lambda r, name: r.one("PodMonitor", name)["spec"]["podMetricsEndpoints"][0]
case("metrics.apiKey.secret", "other", lambda r: all(endpoint(r, name)["authorization"]["credentials"]
     == {"name": "other", "key": "key"} for name in ("router", "workers")), **MONITOR)
case("metrics.apiKey.secretKey", "k", lambda r: endpoint(r, "router")["authorization"]["credentials"]["key"] == "k",
     **MONITOR)
case("metrics.podMonitor.enabled", True, lambda r: r.names("PodMonitor") == ["r-baton-router", "r-baton-workers"]
     and [endpoint(r, name)["relabelings"] for name in ("router", "workers")]
     == [[{"targetLabel": "job", "replacement": f"baton-{name}"}] for name in ("router", "workers")], **MONITOR)
case("metrics.podMonitor.interval", "5s", lambda r: endpoint(r, "workers")["interval"] == "5s", **MONITOR)
case("metrics.podMonitor.labels", {"release": "p"},
     lambda r: r.one("PodMonitor", "router")["metadata"]["labels"]["release"] == "p", **MONITOR)
case("metrics.podMonitor.insecureSkipVerify", True, lambda r: endpoint(r, "router")["tlsConfig"]
     == {"insecureSkipVerify": True} and "tlsConfig" not in endpoint(r, "workers"), server__tls__enabled=True,
     **MONITOR, **WEB)
GROUPS = [{"name": "own", "rules": [{"alert": "A", "expr": "up == 0"}]}]
case("metrics.rules.enabled", True, lambda r: [each["name"] for each in r.one("PrometheusRule")["spec"]["groups"]
     if each["name"] in ("own", "sample")] == ["sample", "own"], metrics__rules__extraGroups=GROUPS)
case("metrics.rules.labels", {"p": "q"}, lambda r: r.one("PrometheusRule")["metadata"]["labels"]["p"] == "q",
     metrics__rules__enabled=True, metrics__rules__extraGroups=GROUPS)
case("metrics.rules.extraGroups", GROUPS, lambda r: GROUPS[0] in r.one("PrometheusRule")["spec"]["groups"],
     metrics__rules__enabled=True)
dashboards = lambda r: [each for each in r.all("ConfigMap") if "-dashboard-" in each["metadata"]["name"]]
case("metrics.dashboards.enabled", True, lambda r: "r-baton-dashboard-sample-board" in r.names("ConfigMap") and all(
    each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in dashboards(r)))
case("metrics.dashboards.labels", {"own": "x"}, lambda r: dashboards(r) != [] and all(
    each["metadata"]["labels"]["own"] == "x" for each in dashboards(r)), metrics__dashboards__enabled=True)
case("metrics.dashboards.annotations", {"folder": "x"}, lambda r: dashboards(r) != [] and all(
    each["metadata"]["annotations"] == {"folder": "x"} for each in dashboards(r)), metrics__dashboards__enabled=True)
case("networkPolicy.enabled", False, lambda r: r.all("NetworkPolicy") == [])
rules = lambda r, name, way="ingress": r.one("NetworkPolicy", name)["spec"][way]
PEER = [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]
case("networkPolicy.clients", PEER, lambda r: rules(r, "router")[0]["from"] == PEER
     and "from" not in rules(r, "router")[1])
case("networkPolicy.scrapers", PEER, lambda r: rules(r, "router")[1]["from"] == PEER
     and rules(r, "workers")[1]["from"] == PEER and "from" not in rules(r, "router")[0])
case("networkPolicy.egress", True, lambda r: r.one("NetworkPolicy", "workers")["spec"]["policyTypes"]
     == ["Ingress", "Egress"] and [each["port"] for each in rules(r, "workers", "egress")[1]["ports"]] == ["control"]
     and len(rules(r, "router", "egress")) == 1)
case("networkPolicy.extraEgress", [{"ports": [{"port": 4318}]}], lambda r: {"ports": [{"port": 4318}]} in
     rules(r, "router", "egress") and {"ports": [{"port": 4318}]} in rules(r, "workers", "egress"),
     networkPolicy__egress=True)
POOL = {"inferencePool__enabled": True, "inferencePool__endpointPicker__name": "epp"}
pool = lambda r: r.one("InferencePool")["spec"]
case("inferencePool.enabled", True, lambda r: pool(r)["targetPorts"] == [{"number": 8000}]
     and pool(r)["selector"]["matchLabels"]["app.kubernetes.io/component"] == "router", **POOL)
case("inferencePool.endpointPicker.name", "other", lambda r: pool(r)["endpointPickerRef"]["name"] == "other", **POOL)
case("inferencePool.endpointPicker.port", 9009, lambda r: pool(r)["endpointPickerRef"]["port"] == {"number": 9009},
     **POOL)
case("inferencePool.endpointPicker.failureMode", "FailClose", lambda r: pool(r)["endpointPickerRef"]["failureMode"]
     == "FailClose", **POOL)
case("serviceAccount.create", False, lambda r: r.all("ServiceAccount") == []
     and r.pod("router")["serviceAccountName"] == "default")
case("serviceAccount.name", "own", lambda r: r.one("ServiceAccount")["metadata"]["name"] == "own"
     and r.pod("decode")["serviceAccountName"] == "own")
case("serviceAccount.annotations", {"a": "b"}, lambda r: r.one("ServiceAccount")["metadata"]["annotations"]
     == {"a": "b"})
for name in ("runAsUser", "runAsGroup", "fsGroup"):
    case(f"security.{name}", 2222, lambda r, name=name: all(
        r.pod(role)["securityContext"][name] == 2222 for role in r.roles()))
