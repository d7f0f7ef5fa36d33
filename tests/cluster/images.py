"""Images without a registry: an OCI layout in a tar that containerd imports, of one layer with a program, all
libraries that it is linked with, and further files."""
import gzip
import hashlib
import io
import json
import pathlib
import re
import subprocess
import tarfile


def _libraries(program):
    """{place in the image: file} of what the dynamic linker loads; nothing for a static program."""
    told = subprocess.run(["ldd", program], capture_output=True, text=True)
    return {path: path for path in re.findall(r"(/\S+) \(0x", told.stdout)}


def make_image(tar, name, program, place, files=None, user="0:0"):
    """files: {place: file or folder}. Folders that pods write to are mounted there by their objects."""
    layer = io.BytesIO()
    contents = {place: str(program), **_libraries(program), **(files or {})}
    with tarfile.open(fileobj=layer, mode="w") as out:
        for folder in ("tmp", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            out.addfile(entry)
        for where, file in contents.items():
            out.add(pathlib.Path(file).resolve(), where.lstrip("/"),
                    filter=lambda entry: entry.replace(uid=0, gid=0, uname="", gname="", mode=entry.mode | 0o444,
                                                       deep=False))
    blobs = {}

    def add(data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    packed = gzip.compress(layer.getvalue(), 1)
    config = add(json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Entrypoint": [place], "User": user},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()]},
    }).encode())
    manifest = add(json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **add(packed)}],
    }).encode())
    index = {"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", **manifest,
                                               "annotations": {"io.containerd.image.name": name}}]}
    with tarfile.open(tar, "w") as out:
        parts = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode(),
                 **{f"blobs/sha256/{digest}": data for digest, data in blobs.items()}}
        for where, data in parts.items():
            entry = tarfile.TarInfo(where)
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
