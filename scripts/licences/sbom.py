"""Writes a software bill of materials (CycloneDX 1.5, JSON) of the program: its crates and the Debian packages that it
is built from and links, with versions and licences.

python sbom.py FOLDER PROGRAM MANIFEST OUT    (folder of the build, Cargo.toml of the crates)
"""

import json
import pathlib
import subprocess
import sys

from debian.copyright import Copyright, NotMachineReadableError

from debian_packages import packages_of, used_files

TARGET = "x86_64-unknown-linux-gnu"


def crates(manifest):
    """Those that the library of the manifest is built from; not those of its tests."""
    run = subprocess.run(["cargo", "metadata", "--manifest-path", manifest, "--locked", "--format-version", "1",
                          "--filter-platform", TARGET], capture_output=True, text=True, check=True)
    metadata = json.loads(run.stdout)
    needs = {node["id"]: [dep["pkg"] for dep in node["deps"]
                          if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
             for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found, waiting = set(), [root]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += needs[each]
    for package in sorted(metadata["packages"], key=lambda each: (each["name"], each["version"])):
        if package["id"] in found and package["id"] != root:
            yield {"type": "library", "name": package["name"], "version": package["version"],
                   "purl": f"pkg:cargo/{package['name']}@{package['version']}",
                   "licenses": [{"expression": package["license"].replace("/", " OR ")}] if package["license"] else []}


def debian_licences(package):
    path = pathlib.Path(f"/usr/share/doc/{package}/copyright")
    try:
        copyright = Copyright(path.read_text().splitlines(), strict=False)
    except NotMachineReadableError:
        return [{"license": {"name": f"see {path}"}}]
    names = {paragraph.license.synopsis for paragraph in copyright.all_files_paragraphs() if paragraph.license}
    return [{"license": {"name": name}} for name in sorted(names) if name]


def packages(folder, program):
    names = packages_of(used_files(folder, program))
    run = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${Version} ${Architecture}\n", *names],
                         capture_output=True, text=True, check=True)
    for line in sorted(set(run.stdout.splitlines())):
        name, version, architecture = line.split()
        yield {"type": "library", "name": name, "version": version,
               "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}&distro=debian-12",
               "licenses": debian_licences(name)}


def main(folder, program, manifest, out):
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    components = [*crates(manifest), *packages(folder, program)]
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "name": "baton", "version": " ".join(version[1:]),
                                   "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
    }
    pathlib.Path(out).write_text(json.dumps(document, indent=1) + "\n")
    kinds = [each["purl"].split("/")[0] for each in components]
    print(f"{out}: {kinds.count('pkg:cargo')} crates, {kinds.count('pkg:deb')} packages")


if __name__ == "__main__":
    main(*sys.argv[1:])
