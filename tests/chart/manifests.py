"""The plain manifests in deploy/manifests: the chart rendered with the values beside them, without what is helm's.

manifests.py --helm FILE --write
"""
import argparse
import subprocess
import tempfile
import pathlib

from rendering import CHART, ROOT

FOLDER = ROOT / "deploy/manifests"
HEAD = "# Rendered from deploy/helm/baton with values.yaml by scripts/chart_test.sh render; change those instead.\n"
OF_HELM = ("app.kubernetes.io/managed-by:", "helm.sh/")


def rendered(helm):
    """Returns {name of the file: its text}."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([helm, "template", "baton", str(CHART), "--namespace", "baton", "-f", FOLDER / "values.yaml",
                        "--output-dir", folder], check=True, capture_output=True, timeout=60)
        files = {}
        for path in sorted((pathlib.Path(folder) / "baton/templates").glob("*.yaml")):
            lines = path.read_text().splitlines()
            kept = [line for line in lines if not line.startswith("# Source:") and not line.strip().startswith(OF_HELM)]
            files[path.name] = HEAD + "\n".join(kept).strip("\n") + "\n"
    resources = "".join(f"  - {name}\n" for name in files)
    files["kustomization.yaml"] = f"{HEAD}namespace: baton\nresources:\n{resources}"
    return files


def differing(helm):
    """Returns the names of files that are not what is rendered."""
    files = rendered(helm)
    there = {path.name: path.read_text() for path in FOLDER.glob("*.yaml") if path.name != "values.yaml"}
    return sorted(name for name in files.keys() | there.keys() if files.get(name) != there.get(name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--helm", required=True)
    parser.add_argument("--write", action="store_true", required=True)
    helm = parser.parse_args().helm
    for path in FOLDER.glob("*.yaml"):
        if path.name != "values.yaml":
            path.unlink()
    for name, text in rendered(helm).items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
