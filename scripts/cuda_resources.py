#!/usr/bin/env python3
"""Checks what the compiler made of each CUDA kernel, without a GPU (docs/CUDA.md).

From the assembler's report beside each object: no spill, no stack frame, no warning, and none of the notes by which it
says that it ignored setmaxnreg or serialised wgmma (it exits with 0 for these). From the disassembly: no access to
local memory, matrix operations in the kernels named for them, loads of 16 bytes in those that stream. Registers and
shared memory are those of the table, and a Hopper GPU can start the kernel with them.
"""
import argparse
import pathlib
import re
import subprocess
import sys

REGISTERS = 65536  # of a multiprocessor
SHARED = 227 * 1024  # of a block, beside the system's
SYSTEM_SHARED = 1024  # counted by cuobjdump in units that have dynamic shared memory
HEAD = ("# What the compiler made of each kernel (scripts/cuda_resources.py --write): registers of a thread, threads\n"
        "# and bytes of shared memory of a block, matrix operations in the code (mma.sync, wgmma).\n")


def short_names(symbols):
    """Maps each mangled name to the kernel's, as in GemmTmaWgmmaKernel<2, 256>."""
    if not symbols:
        return {}
    plain = subprocess.run(["c++filt", *symbols], check=True, capture_output=True, text=True).stdout.splitlines()
    names = {}
    for symbol, name in zip(symbols, plain):
        found = re.search(r"(\w+(?:<[^<>]*>)?)\(", name.replace("(anonymous namespace)", ""))
        names[symbol] = found.group(1) if found else name
    return names


def report_complaints(path):
    """What the assembler's report of an object has against its kernels."""
    text = pathlib.Path(f"{path}.ptxas").read_text()
    complaints = []
    for line in text.splitlines():
        if "warning" in line or re.search(r"\(C7[5-9]\d\d\)", line):
            complaints.append(line.strip())
    functions = re.findall(r"Function properties for (\S+)\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
                           r"(\d+) bytes spill loads", text)
    if len(functions) != text.count("Compiling entry function") or not functions:
        complaints.append("the report of the assembler is not read to its end: its words have changed")
    names = short_names([function[0] for function in functions])
    for symbol, *sizes in functions:
        for size, what in zip(sizes, ("stack frame", "spill stores", "spill loads")):
            if size != "0":
                complaints.append(f"{names[symbol]}: {size} bytes of {what}")
    return complaints


def disassembled(cuobjdump, path):
    """Symbol of each kernel of an object, with its instructions counted by name."""
    text = subprocess.run([cuobjdump, "-sass", path], check=True, capture_output=True, text=True).stdout
    kernels = {}
    for part in text.split("Function : ")[1:]:
        symbol = part.split("\n", 1)[0].strip()
        counts = {}
        for name in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)", part):
            counts[name] = counts.get(name, 0) + 1
        counts["LDG.128"] = len(re.findall(r"\bLDG\.[\w.]*\b128\b", part))
        kernels[symbol] = counts
    return kernels


def instruction_complaints(name, counts):
    complaints = [f"{name}: {counts[word]} {word} (local memory)" for word in ("LDL", "STL") if counts.get(word)]
    for part, word in (("Wgmma", "HGMMA"), ("Mma", "HMMA")):
        if part in name and not counts.get(word):
            complaints.append(f"{name}: no {word}, though it is named for it")
    if re.match("Read|Copy", name) and not counts["LDG.128"]:
        complaints.append(f"{name}: no loads of 16 bytes, though it streams")
    return complaints


def resources(cuobjdump, path):
    """Registers and static shared memory of each symbol."""
    text = subprocess.run([cuobjdump, "-res-usage", path], check=True, capture_output=True, text=True).stdout
    return {symbol: (int(registers), max(int(shared) - SYSTEM_SHARED, 0)) for symbol, registers, shared in
            re.findall(r"Function (\S+):\n\s+REG:(\d+) .*?SHARED:(\d+)", text)}


def start_complaints(name, registers, threads, shared):
    complaints = []
    if -(-registers // 8) * 8 * -(-threads // 32) * 32 > REGISTERS:
        complaints.append(f"{name}: no GPU can start it, {threads} threads of {registers} registers")
    if shared > SHARED:
        complaints.append(f"{name}: no GPU can start it, {shared} bytes of shared memory")
    return complaints


def check(cuobjdump, objects, launches):
    """Returns complaints and the lines of the table. launches: threads and dynamic shared memory by kernel."""
    complaints, rows = [], []
    for path in objects:
        unit = pathlib.Path(path).stem
        found = report_complaints(path)
        kernels = disassembled(cuobjdump, path)
        usage = resources(cuobjdump, path)
        names = short_names(list(kernels))
        if set(kernels) != set(usage) or not kernels:
            found.append("disassembly and resources name other kernels")
        for symbol, counts in kernels.items():
            name = names[symbol]
            registers, static = usage.get(symbol, (0, 0))
            found += instruction_complaints(name, counts)
            if name not in launches:
                found.append(f"{name}: baton_gpu_check --kernels does not name it")
                continue
            threads, dynamic = launches[name]
            found += start_complaints(name, registers, threads, static + dynamic)
            rows.append(f"{unit:14} {name:30} {registers:9} {threads:7} {static + dynamic:8} "
                        f"{counts.get('HMMA', 0):5} {counts.get('HGMMA', 0):6}")
        complaints += [f"{unit}: {complaint}" for complaint in found]
    head = f"{'# unit':14} {'kernel':30} {'registers':>9} {'threads':>7} {'shared':>8} {'mma':>5} {'wgmma':>6}"
    return complaints, HEAD + "\n".join([head, *sorted(rows)]) + "\n"


def read_launches(text):
    launches = {}
    for line in text.splitlines():
        threads, shared, name = line.split(" ", 2)
        launches[name] = (int(threads), int(shared))
    return launches


def table_complaints(found, kept):
    """What the table that is kept does not say."""
    kept_lines, found_lines = set(kept.splitlines()), set(found.splitlines())
    return ([f"not in the table: {line}" for line in sorted(found_lines - kept_lines)] +
            [f"in the table only: {line}" for line in sorted(kept_lines - found_lines)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("--program", required=True, help="baton_gpu_check, which names the launches")
    parser.add_argument("--table", required=True, help="engine/cuda/resources.txt")
    parser.add_argument("--write", action="store_true", help="writes the table anew")
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()
    launches = subprocess.run([options.program, "--kernels"], check=True, capture_output=True, text=True).stdout
    complaints, table = check(options.cuobjdump, options.objects, read_launches(launches))
    if options.write:
        pathlib.Path(options.table).write_text(table)
    complaints += table_complaints(table, pathlib.Path(options.table).read_text())
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        print("cuda_resources: a table that should change is written anew with --write", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
