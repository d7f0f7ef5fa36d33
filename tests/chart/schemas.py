"""Writes JSON schemas for kubeconform: of the kinds of Kubernetes that the chart makes, from the OpenAPI files of the
module k8s.io/kubernetes, and of the CRDs that it uses, from their projects' modules. Strict: no unknown field. The CRDs
themselves lie in OUT/crds, for an API server (scripts/cluster_test.sh).

schemas.py OUT KUBERNETES PROMETHEUS_OPERATOR KEDA INFERENCE_EXTENSION CERT_MANAGER   (folders of the modules)
"""
import json
import os
import pathlib
import sys

import yaml

KINDS = {  # file of api/openapi-spec/v3: kinds
    "api__v1": ["ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim"],
    "apis__apps__v1": ["Deployment", "StatefulSet"],
    "apis__batch__v1": ["Job"],
    "apis__policy__v1": ["PodDisruptionBudget"],
    "apis__networking.k8s.io__v1": ["NetworkPolicy"],
    "apis__autoscaling__v2": ["HorizontalPodAutoscaler"],
}
CRDS = [
    ("example/prometheus-operator-crd", ["monitoring.coreos.com_podmonitors", "monitoring.coreos.com_prometheusrules"]),
    ("config/crd/bases", ["keda.sh_scaledobjects"]),
    ("config/crd/bases", ["inference.networking.k8s.io_inferencepools"]),
    ("deploy/crds", ["crd-certificates", "crd-issuers"]),
]
ANY_SCALAR = {"oneOf": [{"type": "string"}, {"type": "number"}]}
DROPPED = {"description", "default", "example", "title", "nullable", "format"}


def closed(schema):
    """The schema without words, which takes no field that it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return ANY_SCALAR
    result = {}
    for key, part in schema.items():
        if key == "properties":
            result[key] = {name: closed(value) for name, value in part.items()}
        elif key == "$ref":
            result[key] = part.replace("#/components/schemas/", "#/definitions/")
        elif key not in DROPPED and not key.startswith("x-"):
            result[key] = closed(part)
    if "properties" in result and "additionalProperties" not in result:
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    return result


def references(part):
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rsplit("/", 1)[1]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def write(out, group, version, kind, schema):
    path = out / (group or "v1") / f"{kind.lower()}_{version}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(schema))


def write_kinds(out, kubernetes):
    for name, kinds in KINDS.items():
        document = json.loads((kubernetes / "api/openapi-spec/v3" / f"{name}_openapi.json").read_text())
        schemas = {key: closed(value) for key, value in document["components"]["schemas"].items()}
        for key in schemas:
            if key.endswith("resource.Quantity"):
                schemas[key] = ANY_SCALAR
            if key.endswith("intstr.IntOrString"):
                schemas[key] = ANY_SCALAR
        for kind in kinds:
            key, found = next(
                (key, of) for key, value in document["components"]["schemas"].items()
                for of in value.get("x-kubernetes-group-version-kind", []) if of["kind"] == kind
                and key.endswith("." + kind))
            needed, waiting = {}, [key]
            while waiting:
                each = waiting.pop()
                if each not in needed:
                    needed[each] = schemas[each]
                    waiting += references(schemas[each])
            write(out, found["group"], found["version"], kind, {"$ref": f"#/definitions/{key}", "definitions": needed})


def write_crds(out, folders):
    for folder, (where, names) in zip(folders, CRDS):
        for name in names:
            document = yaml.load((folder / where / f"{name}.yaml").read_text(), yaml.CSafeLoader)
            document["metadata"].pop("labels", None)  # cert-manager's are templates of its chart
            (out / "crds").mkdir(exist_ok=True)
            (out / "crds" / f"{name}.json").write_text(json.dumps(document))
            crd = document["spec"]
            for version in crd["versions"]:
                schema = closed(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                write(out, crd["group"], version["name"], crd["names"]["kind"], schema)


def main():
    out, *folders = (pathlib.Path(argument) for argument in sys.argv[1:])
    part = out.with_name(f"{out.name}.{os.getpid()}")
    write_kinds(part, folders[0])
    write_crds(part, folders[1:])
    part.rename(out)


main()
