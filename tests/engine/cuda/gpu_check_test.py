"""Tests of tools/gpu_check.sh on machines without a GPU: it skips; and with a program in place of baton_gpu_check that
does what its parts are told to, it keeps what was measured, whatever a part does."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools/gpu_check.sh"
options = None

DOUBLE = r"""#!/bin/bash
line() { printf '{"part":"%s","name":"%s","shape":"2 x 3","value":%s,"unit":"%s","verdict":"%s","note":"%s"}\n' "$@"; }
case $1 in
  --source-id) echo SOURCES ;;
  --probe) PROBE ;;
CASES
  *) line "$1" compared 0 differing PASS "" ;;
esac
"""


def source_id():
    return subprocess.run(["sh", str(ROOT / "engine/cuda/source_id.sh"), str(ROOT)], check=True, capture_output=True,
                          text=True).stdout.strip()


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, *arguments, cases=None, probe="echo 'A GPU'", sources=None, env=None):
        """cases: what parts do, in bash; None: no double."""
        words = [str(SCRIPT), "--out", str(self.folder / "out"), "--engine", "/nowhere", "--baton", "/nowhere", *arguments]
        if cases is not None:
            double = self.folder / "double"
            text = DOUBLE.replace("SOURCES", sources or source_id()).replace("PROBE", probe)
            double.write_text(text.replace("CASES", "".join(f"  {part}) {does} ;;\n" for part, does in cases.items())))
            double.chmod(0o755)
            words += ["--program", str(double)]
        self.begin = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, env=env)
        self.seconds = time.monotonic() - self.begin
        return done

    def lines(self):
        """The results; each line must be JSON."""
        return [json.loads(line) for line in (self.folder / "out/results.jsonl").read_text().splitlines()]

    def verdicts(self, part):
        return [line["verdict"] for line in self.lines() if line["part"] == part]

    def test_all_parts_pass(self):
        done = self.run_script(cases={})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout.splitlines()[-1], 
                         r"^gpu_check: A GPU, S0 PASS, S1 PASS, S2 PASS, S3 SKIP, S4 PASS, S6 \w+, S5 \w+, \d+ s, commit ")
        parts = {line["part"] for line in self.lines()}
        self.assertEqual(parts, {"S0.tree", "S0.gpu", "S0.memory", "S0.matrix", "S0.link", "S0.host", "S1.a", "S1.b",
                                 "S1.c", "S1.d", "S1.e", "S1.f", "S1.h", "S1.k", "S2.attention", "S2.gemm", "S2.rows",
                                 "S2.sample", "S3.oracle", "S3.cpu", "S3.batches", "S3.orders", "S3.serve",
                                 "S4.steps", "S5.peers", "S6.memcheck", "S6.racecheck"})
        self.assertEqual(self.verdicts("S3.oracle"), ["SKIP"])
        self.assertIn(source_id(), self.lines()[0]["note"])

    def test_a_difference_fails_and_is_in_the_table(self):
        done = self.run_script(cases={"S1.a": "line S1.a compared 7 differing FAIL 'element 3'; exit 1"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("  FAIL compared, 2 x 3: 7 differing (element 3)", done.stdout)
        self.assertIn("S0 PASS, S1 FAIL, S2 PASS", done.stdout.splitlines()[-1])

    def test_a_part_that_hangs_costs_itself_only(self):
        done = self.run_script("--time-out", "1", cases={"S1.e": "line S1.e first 0 x PASS ''; sleep 60"})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.verdicts("S1.e"), ["PASS", "FAIL"])
        self.assertIn("time-out after 1 s", done.stdout)
        self.assertEqual(self.verdicts("S1.c"), ["PASS"])  # the last one

    def test_a_part_that_dies_keeps_what_it_has_measured(self):
        done = self.run_script(cases={"S0.host": "line S0.host launch 2.5 us INFO ''; printf '{\"part\":\"S0.h'; "
                                                 "echo 'no memory' >&2; kill -SEGV $$"})
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.verdicts("S0.host"), ["INFO", "FAIL"])
        self.assertIn("ended with 139: no memory", done.stdout)
        self.assertIn("  INFO launch, 2 x 3: 2.5 us", done.stdout)

    def test_warnings_and_skipped_parts_are_told_and_do_not_fail(self):
        done = self.run_script(cases={"S1.c": "line S1.c cuBLASLt 0 '' SKIP 'no library'"})
        self.assertEqual(done.returncode, 0)
        self.assertIn("(no library)", done.stdout)
        self.assertIn("S0 PASS, S1 SKIP", done.stdout.splitlines()[-1])

    def test_only_some_parts(self):
        self.assertEqual(self.run_script("--only", "S1.k", cases={}).returncode, 0)
        self.assertEqual({line["part"] for line in self.lines()}, {"S0.tree", "S1.k"})
        self.assertEqual(self.run_script("--only", "S0", cases={}).returncode, 0)
        self.assertEqual({line["part"][:2] for line in self.lines()}, {"S0"})

    def test_options_reach_the_program(self):
        done = self.run_script("--quick", "--lib-dir", "/some where", "--only", "S1.c",
                               cases={"S1.c": 'line S1.c options 0 "" INFO "$*"; line S1.c x 0 "" WARN "$*"'})
        self.assertIn("S1.c --predictions tests/data/golden/cuda-sm90-gemm.txt --quick --lib-dir /some where",
                      done.stdout)
        self.assertEqual(done.returncode, 0)

    def test_cublaslt_is_found_among_pythons_packages(self):
        library = self.folder / "packages/nvidia/cublas/lib/libcublasLt.so.13"
        library.parent.mkdir(parents=True)
        library.touch()
        python = self.folder / "bin/python3"
        python.parent.mkdir()
        python.write_text(f"#!/bin/sh\necho /nowhere {self.folder}/packages\n")
        python.chmod(0o755)
        done = self.run_script("--only", "S1.c", cases={"S1.c": 'line S1.c options 0 "" WARN "$*"'},
                               env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"})
        self.assertIn(f"--lib-dir {library.parent}", done.stdout)

    def test_a_program_of_other_sources_is_refused(self):
        done = self.run_script(cases={}, sources="0123456789abcdef")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr,
                         "is of other sources .0123456789abcdef, the tree has [0-9a-f]{16}.: build it anew")
        self.assertFalse((self.folder / "out/results.jsonl").exists())

    def test_a_changed_kernel_makes_other_sources(self):
        copy = self.folder / "tree"
        for path in ("engine/cuda", "engine/numerics", "scripts"):
            shutil.copytree(ROOT / path, copy / path)
        command = ["sh", str(copy / "engine/cuda/source_id.sh"), str(copy)]
        before = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        self.assertEqual(before, source_id())
        for changed in ("engine/cuda/gemm_mma.cu", "engine/cuda/check/inputs.h", "engine/cuda/compile.sh",
                        "scripts/cuda_tools.txt", "engine/numerics/tensor_core_dot.h"):
            with (copy / changed).open("a") as file:
                file.write("\n")
            after = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            self.assertNotEqual(after, before, changed)
            before = after

    def test_a_gpu_that_cannot_serve_is_skipped_unless_one_is_required(self):
        for arguments, status in ((), 0), (("--require-gpu",), 1):
            done = self.run_script(*arguments, cases={}, probe="echo 'an old GPU'; exit 77")
            self.assertEqual(done.returncode, status)
            self.assertIn("SKIP, an old GPU", done.stdout)
            self.assertLess(self.seconds, 30)

    def test_wrong_arguments(self):
        for arguments in ("--only", "S9"), ("--fast",), ("--out",):
            self.assertEqual(self.run_script(*arguments, cases={}).returncode, 2, arguments)

    def test_help_fits_on_a_screen(self):
        done = self.run_script("--help")
        self.assertEqual(done.returncode, 0)
        self.assertLessEqual(len(done.stdout.splitlines()), 25)

    def test_parts_end_within_ten_minutes(self):
        parts = re.search(r'^parts="([^"]*)"', SCRIPT.read_text(), re.M).group(1).split()
        self.assertLess(sum(int(part.split(":")[1]) for part in parts), 570)


class Tools(unittest.TestCase):
    """scripts/cuda_tools.sh where PyPI does not answer, or answers with something else."""

    def fetch(self, **settings):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(ROOT / "scripts/cuda_tools.sh")], capture_output=True, text=True,
                                  env={**os.environ, "XDG_CACHE_HOME": folder, **settings})
            self.assertFalse((pathlib.Path(folder) / "baton-tools/cuda").exists())
            self.assertEqual(done.stdout, "")
            return done

    def test_no_network(self):
        done = self.fetch(PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0")
        self.assertEqual(done.returncode, 3)
        self.assertIn("so nothing of CUDA can be built or checked", done.stderr)

    def test_another_file(self):
        with tempfile.TemporaryDirectory() as wheels:
            for line in (ROOT / "scripts/cuda_tools.txt").read_text().splitlines():
                if not line.startswith("#"):
                    name, version = line.split()[0].split("==")
                    with zipfile.ZipFile(f"{wheels}/{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as wheel:
                        wheel.writestr("evil", "")
            done = self.fetch(PIP_NO_INDEX="1", PIP_FIND_LINKS=wheels)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has not the check sum", done.stderr)


class Program(unittest.TestCase):
    """The real one, where a CUDA compiler builds it."""

    def run_program(self, *arguments):
        return subprocess.run([options.program, *arguments], capture_output=True, text=True)

    def test_it_is_of_these_sources(self):
        self.assertEqual(self.run_program("--source-id").stdout.strip(), source_id())

    def test_without_a_gpu_the_script_skips_and_with_one_it_passes(self):
        has_gpu = self.run_program("--probe").returncode == 0
        with tempfile.TemporaryDirectory() as folder:
            words = [str(SCRIPT), "--out", folder, "--program", options.program, "--only", "S0.gpu"]
            begin = time.monotonic()
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertLess(time.monotonic() - begin, 30)
            self.assertEqual("SKIP" in done.stdout, not has_gpu)
            done = subprocess.run([*words, "--require-gpu"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0 if has_gpu else 1)

    def test_the_script_builds_it(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(SCRIPT), "--out", folder, "--build", "--cuda", options.cuda, "--only", "S0.gpu"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            built = subprocess.run([f"{folder}/program/baton_gpu_check", "--source-id"], capture_output=True, text=True)
            self.assertEqual(built.stdout.strip(), source_id())

    def test_it_predicts_what_is_committed(self):
        self.assertEqual(self.run_program("--predict").stdout,
                         (ROOT / "tests/data/golden/cuda-sm90-gemm.txt").read_text())

    def test_every_part_of_the_script_is_known_to_it(self):
        parts = re.search(r'^parts="([^"]*)"', SCRIPT.read_text(), re.M).group(1).split()
        known = self.run_program("--help").stderr.split("parts:")[1].split()
        own = [part.split(":")[0] for part in parts if part[:2] in ("S0", "S1", "S2", "S4")]  # others: other programs
        self.assertEqual(sorted(own), sorted(known))

    def test_it_needs_nothing_but_the_c_library(self):
        needed = subprocess.run(["ldd", options.program], check=True, capture_output=True, text=True).stdout
        names = {line.split()[0].rsplit("/", 1)[-1].split(".")[0] for line in needed.splitlines()}
        self.assertLessEqual(names, {"linux-vdso", "libc", "libm", "libdl", "librt", "libpthread", "ld-linux-x86-64"})
        self.assertLess(pathlib.Path(options.program).stat().st_size, 25_000_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--cuda", help="folder of the compiler that built the program")
    options, rest = parser.parse_known_args()
    classes = ["Script", "Tools", *(["Program"] if options.program else [])]
    unittest.main(argv=["gpu_check_test.py", *(rest or classes)], verbosity=2)
