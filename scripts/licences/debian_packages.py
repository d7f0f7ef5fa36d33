"""Checks the licences of all Debian packages that Baton is built from: those whose headers the build
in FOLDER reads and whose libraries the program links. Prints each with its licences; ends with 1 if
one is not in debian_packages.toml.

python debian_packages.py FOLDER PROGRAM
"""

import fnmatch
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tomllib

from debian.copyright import Copyright, NotMachineReadableError


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def used_files(folder, program):
    files = set(re.findall(r"=> (/\S+)", output("ldd", program)))
    files |= set(re.findall(r"^\s+(/usr/\S+)$", output("ninja", "-C", folder, "-t", "deps"), re.M))
    inputs = output("ninja", "-C", folder, "-t", "inputs", os.path.basename(program))
    files |= {file for file in inputs.split() if file.startswith("/usr/")}
    return files | {os.path.realpath(file) for file in files}


def packages_of(files):
    # A package may have put its files into /lib, which is a link to /usr/lib.
    paths = files | {file[len("/usr"):] for file in files if file.startswith("/usr/lib/")}
    owners = set()
    for line in output("dpkg-query", "-S", *sorted(paths)).splitlines():
        names, _, _ = line.rpartition(": ")
        owners |= {name.strip().split(":")[0] for name in names.split(",")}
    return sorted(owner for owner in owners if not owner.startswith("diversion by"))


def row_of(table, package):
    """The row of the longest name that the package begins with."""
    names = [name for name in table if package.startswith(name)]
    return table[max(names, key=len)] if names else None


def is_allowed(licence, allowed):
    """Whether a licence such as "Artistic or GPL-1+" holds with the allowed ones alone."""
    if licence in allowed:
        return True
    either = re.split(r"\s+or\s+", licence)
    if len(either) > 1:
        return any(is_allowed(part, allowed) for part in either)
    both = re.split(r"\s+and\s+|,\s*", licence)
    return len(both) > 1 and all(is_allowed(part, allowed) for part in both)


def problem_of(package, path, settings):
    """Prints the package; returns what is wrong with it, or nothing."""
    text = path.read_bytes()
    read = row_of(settings["read"], package)
    if read is not None:
        print(f"  {package}: {read['licence']} (read by hand)")
        digest = hashlib.sha256(text).hexdigest()
        if digest != read["sha256"]:
            return f"{path} is not the file that was read: read it, and set sha256 = \"{digest}\""
        return None
    try:
        copyright = Copyright(text.decode().splitlines(), strict=False)
    except NotMachineReadableError:
        return f"{path} is not machine-readable: read it, and add it to [read]"
    unused = ["debian/*", *(row_of(settings["not_linked"], package) or [])]
    licences = set()
    for paragraph in copyright.all_files_paragraphs():
        if not all(any(fnmatch.fnmatch(file, glob) for glob in unused) for file in paragraph.files):
            licences.add(paragraph.license.synopsis if paragraph.license else "none")
    print(f"  {package}: {', '.join(sorted(licences))}")
    unknown = sorted(name for name in licences if not is_allowed(name, settings["allowed"]))
    if not licences or unknown:
        return f"{path}: not allowed: {unknown or 'no licence'}"
    return None


def main(folder, program):
    settings = tomllib.loads(pathlib.Path(__file__).with_name("debian_packages.toml").read_text())
    packages = packages_of(used_files(folder, program))
    if len(packages) < 20:  # the build alone has more
        sys.exit(f"only {len(packages)} packages found: is {folder} built?")
    problems = []
    for package in packages:
        path = pathlib.Path(f"/usr/share/doc/{package}/copyright")
        problems.append(problem_of(package, path, settings))
    problems = [problem for problem in problems if problem]
    for problem in problems:
        print(f"licence: {problem}", file=sys.stderr)
    print(f"{len(packages)} packages, {len(problems)} with problems (scripts/licences/debian_packages.toml)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
