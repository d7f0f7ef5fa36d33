"""Tests of scripts/cuda_resources.py: the kernels of the tree pass, and a kernel with each fault does not."""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import cuda_resources  # noqa: E402

options = None

SPILL = """
__global__ void __launch_bounds__(1024) FaultKernel(float* out, const float* in) {
  float v[120];
#pragma unroll
  for (int i = 0; i < 120; ++i) v[i] = in[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 120; ++i) out[i * 1024 + threadIdx.x] = v[i] * v[119 - i] + v[(i + 60) % 120];
}
"""
STACK = """
__global__ void FaultKernel(float* out, const int* order, int n) {
  float v[64];
  for (int i = 0; i < 64; ++i) v[i] = out[i];
  for (int i = 0; i < n; ++i) v[order[i] % 64] += 1.0f;
  for (int i = 0; i < 64; ++i) out[i] = v[i];
}
"""
SETMAXNREG = """
__global__ void FaultKernel(float* out) {
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    out[threadIdx.x] = 1;
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    out[threadIdx.x] = 2;
  }
}
"""
SERIALISED = """
#include "engine/cuda/wgmma.cuh"
__global__ void __launch_bounds__(128, 1) FaultWgmmaKernel(float* out, uint64_t a, uint64_t b) {
  float d[32];
  for (float& x : d) x = 0;
  baton::WarpgroupFence();
  for (int i = 0; i < 4; ++i) {
    baton::Wgmma<64>::Add(d, a + i, b + i);
    d[i] += 1.0f;
  }
  baton::WarpgroupCommit();
  baton::WarpgroupWait<0>();
  for (int i = 0; i < 32; ++i) out[i * 128 + threadIdx.x] = d[i];
}
"""
NO_WGMMA = """
__global__ void FaultWgmmaKernel(float* out, float a) { out[threadIdx.x] = a * a; }
"""
NO_MMA = NO_WGMMA.replace("Wgmma", "Mma")
NARROW = """
__global__ void ReadKernel(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x]; }
"""
GOOD = NO_WGMMA.replace("Wgmma", "")
LAUNCHES = {name: (128, 0) for name in ("FaultKernel", "FaultWgmmaKernel", "FaultMmaKernel", "ReadKernel")}


class Faults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def compiled(self, source):
        path = pathlib.Path(self.folder.name) / "fault.cu"
        path.write_text("#include <cstdint>\n" + source)
        made = path.with_suffix(".o")
        subprocess.run(["sh", str(ROOT / "engine/cuda/compile.sh"), options.nvcc, str(ROOT), str(path), str(made)],
                       check=True)
        return str(made)

    def complaints(self, source, launches=None):
        return "\n".join(cuda_resources.check(options.cuobjdump, [self.compiled(source)], launches or LAUNCHES)[0])

    def test_a_kernel_without_fault_passes(self):
        self.assertEqual(self.complaints(GOOD), "")

    def test_spills(self):
        found = self.complaints(SPILL, {"FaultKernel": (1024, 0)})
        self.assertRegex(found, r"FaultKernel: \d+ bytes of spill stores")
        self.assertRegex(found, r"FaultKernel: \d+ bytes of spill loads")

    def test_a_stack_frame(self):
        self.assertRegex(self.complaints(STACK), r"FaultKernel: \d+ bytes of stack frame")

    def test_an_ignored_setmaxnreg(self):
        self.assertIn("'setmaxnreg' ignored", self.complaints(SETMAXNREG))

    def test_serialised_wgmma(self):
        found = self.complaints(SERIALISED)
        self.assertIn("warpgroup.wait is injected", found)
        self.assertIn("wgmma.mma_async instructions are serialized", found)

    def test_local_memory_in_the_disassembly_alone(self):
        made = self.compiled(STACK)
        report = pathlib.Path(made + ".ptxas")
        clean = self.compiled(GOOD) + ".ptxas"  # a report that says nothing
        text = pathlib.Path(clean).read_text()
        made = self.compiled(STACK)
        report.write_text(text)
        found = "\n".join(cuda_resources.check(options.cuobjdump, [made], LAUNCHES)[0])
        self.assertRegex(found, r"FaultKernel: \d+ LDL")
        self.assertRegex(found, r"FaultKernel: \d+ STL")
        self.assertNotIn("stack frame", found)

    def test_missing_matrix_operations(self):
        self.assertIn("FaultWgmmaKernel: no HGMMA", self.complaints(NO_WGMMA))
        self.assertIn("FaultMmaKernel: no HMMA", self.complaints(NO_MMA))

    def test_narrow_loads(self):
        self.assertIn("ReadKernel: no loads of 16 bytes", self.complaints(NARROW))

    def test_a_report_in_other_words(self):
        made = self.compiled(GOOD)
        report = pathlib.Path(made + ".ptxas")
        report.write_text(report.read_text().replace("spill stores", "stores that spill"))
        found = "\n".join(cuda_resources.check(options.cuobjdump, [made], LAUNCHES)[0])
        self.assertIn("not read to its end", found)

    def test_a_kernel_that_no_gpu_can_start(self):
        self.assertIn("bytes of shared memory", self.complaints(GOOD, {"FaultKernel": (128, 232449)}))
        self.assertEqual(self.complaints(GOOD, {"FaultKernel": (128, 232448)}), "")
        self.assertEqual(cuda_resources.start_complaints("K", 128, 512, 0), [])
        self.assertEqual(len(cuda_resources.start_complaints("K", 129, 512, 0)), 1)

    def test_an_unknown_launch(self):
        self.assertIn("does not name it", self.complaints(GOOD, {"Other": (1, 1)}))


class Tree(unittest.TestCase):
    def run_tool(self, table):
        return subprocess.run([sys.executable, "-B", str(ROOT / "scripts/cuda_resources.py"), "--cuobjdump",
                               options.cuobjdump, "--program", options.program, "--table", str(table),
                               *options.objects], capture_output=True, text=True)

    def test_the_kernels_of_the_tree_are_those_of_the_table(self):
        done = self.run_tool(ROOT / "engine/cuda/resources.txt")
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0)

    def test_another_number_of_registers_is_told(self):
        kept = (ROOT / "engine/cuda/resources.txt").read_text()
        lines = kept.splitlines(keepends=True)
        changed = next(i for i, line in enumerate(lines) if "GemmMmaKernel" in line)
        fields = lines[changed].split()
        lines[changed] = lines[changed].replace(f" {fields[2]} ", f" {int(fields[2]) + 1} ", 1)
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "resources.txt"
            table.write_text("".join(lines))
            done = self.run_tool(table)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not in the table: gemm_mma", done.stderr)
        self.assertIn("in the table only: gemm_mma", done.stderr)

    def test_at_most_ten_units(self):
        self.assertLessEqual(len(list((ROOT / "engine/cuda").rglob("*.cu"))), 10)
        self.assertEqual(len(list((ROOT / "engine/cuda").rglob("*.cu"))), len(options.objects))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--nvcc", "--cuobjdump", "--program"):
        parser.add_argument(name, required=True)
    parser.add_argument("--objects", nargs="+", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
