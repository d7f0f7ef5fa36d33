// S0: what this GPU, this link and this host can do at most. Later figures are shares of these.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "engine/cuda/check/chain_kernels.h"
#include "engine/cuda/check/check_kernels.h"
#include "engine/cuda/check/gpu.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/gemm.h"

namespace baton {
namespace {

constexpr int kRepeats = 20;
using Clock = std::chrono::steady_clock;

double Micros(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double Percent(double first, double second) {
  return 100.0 * (first > second ? first - second : second - first) / first;
}

cudaDeviceProp Properties() {
  int device = 0;
  cudaDeviceProp properties;
  GPU_CHECK(cudaGetDevice(&device));
  GPU_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties;
}

}  // namespace

void MeasureMemory(Report& report) {
  constexpr int64_t kBytes = int64_t{1} << 31;  // far beyond the cache
  const Stream stream;
  GpuArray<uint4> from(kBytes / 16), to(kBytes / 16);
  GpuArray<uint32_t> sink(1);
  GPU_CHECK(FillInputs(reinterpret_cast<uint16_t*>(from.get()),
                       {Distribution::kNormal, 1, 1, kBytes / 128, 64}, stream));
  to.Poison(stream);
  const double bytes = static_cast<double>(kBytes);
  const auto copy = [&] {
    GPU_CHECK(
        cudaMemcpyAsync(to.get(), from.get(), from.bytes(), cudaMemcpyDeviceToDevice, stream));
  };
  const double first = MedianMicros(stream, kRepeats, copy);
  const double second = MedianMicros(stream, kRepeats, copy);
  report.Add(
      {"S0.memory", "copy, bytes read and written", "2 GiB", 2 * bytes / first * 1e-6, "TB/s"});
  report.Add({"S0.memory", "the same copy twice", "2 GiB", Percent(first, second), "% apart"});
  const double by_kernel = MedianMicros(
      stream, kRepeats, [&] { GPU_CHECK(CopyAll(from.get(), to.get(), from.size(), stream)); });
  report.Add({"S0.memory", "copy by a kernel", "2 GiB", 2 * bytes / by_kernel * 1e-6, "TB/s"});
  GpuArray<uint64_t> count(1);
  GPU_CHECK(cudaMemsetAsync(count.get(), 0, count.bytes(), stream));
  GPU_CHECK(CountDifferent(reinterpret_cast<uint32_t*>(from.get()),
                           reinterpret_cast<uint32_t*>(to.get()), from.size() * 4, count.get(),
                           stream));
  stream.Wait();
  report.AddDifferences("S0.memory", "copies are equal", "2 GiB", count.Read()[0]);
  const double read = MedianMicros(
      stream, kRepeats, [&] { GPU_CHECK(ReadAll(from.get(), from.size(), sink.get(), stream)); });
  report.Add({"S0.memory", "read only", "2 GiB", bytes / read * 1e-6, "TB/s"});
}

void MeasureMatrixRate(Report& report) {
  const Stream stream;
  const cudaDeviceProp properties = Properties();
  GpuArray<uint16_t> operands(256 * 64);
  GPU_CHECK(FillInputs(operands.get(), {Distribution::kNormal, 1, 1, 256, 64}, stream));
  GpuArray<uint64_t> cycles(1);
  GpuArray<float> sink(1);
  constexpr int kSteps = 8192;
  const ChainRun run{1, kSteps, operands.get(), cycles.get(), sink.get()};
  const double micros = MedianMicros(stream, kRepeats, [&] {
    GPU_CHECK(RunWgmmaRate(properties.multiProcessorCount, run, stream));
  });
  const double operations = 2.0 * 64 * 256 * 16 * 2 * kSteps * properties.multiProcessorCount;
  report.Add({"S0.matrix", "wgmma m64n256k16 alone, bf16", "all multiprocessors",
              operations / micros * 1e-6, "TFLOP/s"});
  constexpr int kSide = 8192;
  GpuArray<uint16_t> a(int64_t{kSide} * kSide), b(int64_t{kSide} * kSide);
  GpuArray<float> c(int64_t{kSide} * kSide);
  GPU_CHECK(FillInputs(a.get(), {Distribution::kNormal, 1, 1, kSide, kSide}, stream));
  GPU_CHECK(FillInputs(b.get(), {Distribution::kNormal, 1, 2, kSide, kSide}, stream));
  const auto multiply = [&] {
    GPU_CHECK(
        Multiply(a.get(), kSide, b.get(), SumsOf(c.get(), kSide), {kSide, kSide, kSide}, stream));
  };
  const double first = MedianMicros(stream, kRepeats, multiply);
  const double second = MedianMicros(stream, kRepeats, multiply);
  report.Add({"S0.matrix", "own GEMM, bf16 to fp32", "8192 x 8192 x 8192",
              2.0 * kSide * kSide * kSide / first * 1e-6, "TFLOP/s"});
  // Weights of the widest layer of an 8B model: four times the cache.
  constexpr int kDepth = 4096, kWidth = 28672;
  GpuArray<uint16_t> weights(int64_t{kDepth} * kWidth);
  GPU_CHECK(FillInputs(weights.get(), {Distribution::kNormal, 1, 3, kWidth, kDepth}, stream));
  for (const int rows : {1, 8, 32}) {
    const GemmShape few{rows, kWidth, kDepth};
    const double row_micros = MedianMicros(stream, kRepeats, [&] {
      GPU_CHECK(Multiply(a.get(), kDepth, weights.get(), SumsOf(c.get(), kWidth), few, stream));
    });
    report.Add({"S0.matrix", "own GEMM of few rows, bytes of weights",
                std::to_string(rows) + " x 28672 x 4096",
                static_cast<double>(weights.bytes()) / row_micros * 1e-6, "TB/s"});
  }
  report.Add({"S0.matrix", "the same GEMM twice", "8192 x 8192 x 8192", Percent(first, second),
              "% apart"});
}

void MeasureLink(Report& report) {
  constexpr int64_t kBytes = int64_t{1} << 28;
  const double bytes = static_cast<double>(kBytes);
  const Stream down, up;
  GpuArray<char> device_down(kBytes), device_up(kBytes);
  GpuArray<char, true> host_down(kBytes), host_up(kBytes);
  std::fill(host_down.get(), host_down.get() + kBytes, 'b');
  device_up.Poison(up);
  const auto to_device = [&] {
    GPU_CHECK(
        cudaMemcpyAsync(device_down.get(), host_down.get(), kBytes, cudaMemcpyHostToDevice, down));
  };
  const auto to_host = [&] {
    GPU_CHECK(cudaMemcpyAsync(host_up.get(), device_up.get(), kBytes, cudaMemcpyDeviceToHost, up));
  };
  report.Add({"S0.link", "pinned memory to GPU", "256 MiB",
              bytes / MedianMicros(down, kRepeats, to_device) * 1e-3, "GB/s"});
  report.Add({"S0.link", "GPU to pinned memory", "256 MiB",
              bytes / MedianMicros(up, kRepeats, to_host) * 1e-3, "GB/s"});
  Event begun(cudaEventDisableTiming), ended(cudaEventDisableTiming);
  const double both = MedianMicros(down, kRepeats, [&] {
    GPU_CHECK(cudaEventRecord(begun, down));
    GPU_CHECK(cudaStreamWaitEvent(up, begun));
    to_device();
    to_host();
    GPU_CHECK(cudaEventRecord(ended, up));
    GPU_CHECK(cudaStreamWaitEvent(down, ended));
  });
  report.Add({"S0.link", "both ways at once, sum", "2 x 256 MiB", 2 * bytes / both * 1e-3, "GB/s"});
}

namespace {

void MeasureLaunches(Report& report) {
  constexpr int kLaunches = 1000;
  const Stream stream;
  const auto launch_all = [&] {
    for (int i = 0; i < kLaunches; ++i) GPU_CHECK(DoNothing(stream));
  };
  launch_all();
  stream.Wait();
  const Clock::time_point begin = Clock::now();
  launch_all();
  const double host = Micros(Clock::now() - begin) / kLaunches;
  stream.Wait();
  report.Add({"S0.host", "launch, on the host", "empty kernel", host, "us"});
  report.Add({"S0.host", "launch, on the GPU", "empty kernels in a row",
              MedianMicros(stream, kRepeats, launch_all) / kLaunches, "us"});
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch_all();
  GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  GPU_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  report.Add(
      {"S0.host", "node of a graph", "1000 empty kernels in a row",
       MedianMicros(stream, kRepeats, [&] { GPU_CHECK(cudaGraphLaunch(executable, stream)); }) /
           kLaunches,
       "us"});
  GPU_CHECK(cudaGraphExecDestroy(executable));
  GPU_CHECK(cudaGraphDestroy(graph));
}

void Notify(void* descriptor) {
  const uint64_t one = 1;
  if (write(*static_cast<int*>(descriptor), &one, sizeof one) != sizeof one) std::_Exit(2);
}

// The host lets a kernel end; its event lets a second stream call a host function, which writes to
// a descriptor that a thread polls. Counted from the host's write: one crossing of the link too
// many.
void MeasureWakeUp(Report& report, int n_rounds) {
  const Stream compute, notify;
  Event ended(cudaEventDisableTiming);
  GpuArray<int, true> flag(1);
  volatile int* const host_flag = flag.get();
  *host_flag = -1;
  int descriptor = eventfd(0, EFD_CLOEXEC);
  std::vector<double> micros;
  for (int round = 0; round < n_rounds; ++round) {
    GPU_CHECK(SpinUntil(flag.get(), round, compute));
    GPU_CHECK(cudaEventRecord(ended, compute));
    GPU_CHECK(cudaStreamWaitEvent(notify, ended));
    GPU_CHECK(cudaLaunchHostFunc(notify, Notify, &descriptor));
    Clock::time_point woken;
    std::thread waiter([&] {
      pollfd poll_on{descriptor, POLLIN, 0};
      uint64_t count = 0;
      if (poll(&poll_on, 1, 5000) != 1 || read(descriptor, &count, sizeof count) != sizeof count)
        std::_Exit(2);
      woken = Clock::now();
    });
    // The kernel runs and the thread polls before the host goes on.
    const Clock::time_point start = Clock::now();
    while (Micros(Clock::now() - start) < 100) std::this_thread::yield();
    const Clock::time_point released = Clock::now();
    *host_flag = round;
    waiter.join();
    micros.push_back(Micros(woken - released));
    notify.Wait();
  }
  close(descriptor);
  const std::string shape = std::to_string(n_rounds) + " events";
  report.Add({"S0.host", "event to woken thread, p50", shape, Quantile(micros, 0.5), "us"});
  report.Add({"S0.host", "event to woken thread, p99", shape, Quantile(micros, 0.99), "us"});
  report.Add({"S0.host", "event to woken thread, p99.9", shape, Quantile(micros, 0.999), "us"});
}

void Ignore(void*) {}

void MeasureHostFunctions(Report& report) {
  constexpr int kKernels = 200;
  const Stream compute, beside;
  Event done(cudaEventDisableTiming);
  const auto per_kernel = [&](const std::function<void()>& after) {
    return MedianMicros(compute, kRepeats,
                        [&] {
                          for (int i = 0; i < kKernels; ++i) {
                            GPU_CHECK(DoNothing(compute));
                            after();
                          }
                        }) /
           kKernels;
  };
  const double alone = per_kernel([] {});
  const double inside =
      per_kernel([&] { GPU_CHECK(cudaLaunchHostFunc(compute, Ignore, nullptr)); });
  const double outside = per_kernel([&] {
    GPU_CHECK(cudaEventRecord(done, compute));
    GPU_CHECK(cudaStreamWaitEvent(beside, done));
    GPU_CHECK(cudaLaunchHostFunc(beside, Ignore, nullptr));
  });
  beside.Wait();
  report.Add({"S0.host", "host function in the compute stream", "after each empty kernel",
              inside - alone, "us"});
  report.Add({"S0.host", "host function in a stream beside", "after each empty kernel",
              outside - alone, "us"});
}

}  // namespace

void MeasureHost(Report& report) {
  MeasureLaunches(report);
  MeasureWakeUp(report, 2000);
  MeasureHostFunctions(report);
}

}  // namespace baton
