#include "server/cli/doctor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/cgroup.h"
#include "common/cpus.h"
#include "common/ids.h"
#include "common/log.h"
#include "engine/cpu/linear/linear.h"
#include "engine/cpu/machine/isa.h"
#include "engine/cpu/machine/machine_probe.h"
#include "engine/load_backend.h"
#include "engine/step/backend.h"
#include "engine/threads/compute_pool.h"
#include "kvtransfer/transfer.h"
#include "server/cli/model_report.h"
#include "server/config/model_folder.h"
#include "server/process/worker_placement.h"

namespace baton {
namespace {

constexpr int64_t kProbeBytes = int64_t{256} << 20;
constexpr rlim_t kWantedDescriptors = 4096;

class Report {
 public:
  void Good(const std::string& name, const std::string& text) { Line("ok  ", name, text); }
  void Note(const std::string& name, const std::string& text) { Line("note", name, text); }
  void Bad(const std::string& name, const std::string& text) {
    Line("BAD ", name, text);
    failed_ = true;
  }
  bool failed() const { return failed_; }

 private:
  static void Line(const char* mark, const std::string& name, const std::string& text) {
    std::printf("%s  %-14s %s\n", mark, name.c_str(), text.c_str());
    std::fflush(stdout);
  }
  bool failed_ = false;
};

void CheckCpu(Report* report) {
  report->Good("cpu", CpuModelName());
  RequestAmxPermission();
  if (IsAmxRefused())
    report->Bad("amx", "the kernel does not let this process use the CPU's tiles");
  const std::vector<Isa> isas = SupportedIsas();
  if (isas.empty()) {
    report->Bad("isa", "not even AVX2: this machine cannot run the engine");
    return;
  }
  ComputePool pool(ComputeThreads(0), 50);
  for (const Isa isa : isas) {
    const std::string name = absl::StrCat("isa ", std::string(IsaName(isa)));
    const auto kernels = MakeLinearKernels(isa);
    if (!kernels.ok()) {
      report->Bad(name, std::string(kernels.status().message()));
      continue;
    }
    report->Good(name, absl::StrFormat("self-test passed, %.0f GFLOP/s multiply-add peak",
                                       ProbeDotGflops(isa, pool)));
  }
  const std::optional<int64_t> limit = OwnMemoryLimit();
  report->Good("memory",
               absl::StrFormat("%.1f GB/s read (compute threads: %d), %.1f GiB in all, %s",
                               MemoryProbe(kProbeBytes).ReadGbps(pool), pool.n_threads(),
                               static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                                   static_cast<double>(sysconf(_SC_PAGESIZE)) / 1073741824.0,
                               limit ? absl::StrFormat("limit %.1f GiB",
                                                       static_cast<double>(*limit) / 1073741824.0)
                                     : "no limit"));
}

// "prefill 1 + 1" of two workers with a thread each.
std::string ThreadsText(const char* role, const std::vector<CpuPlacement>& places) {
  return absl::StrCat(role, " ", absl::StrJoin(places, " + ", [](std::string* out, const auto& it) {
                        absl::StrAppend(out, it.threads);
                      }));
}

// Where a process may compute, and what the workers that `serve` starts make of it.
void CheckThreads(const Config& config, Report* report) {
  const CpuAllowance allowance = OwnCpuAllowance();
  const Placement placement = PlaceWorkers(config, allowance, CurrentCpu());
  std::string text = absl::StrCat(allowance.Text(), "; compute threads: ", allowance.threads(),
                                  " for one worker alone; serve starts ");
  if (config.cluster.colocated) {
    absl::StrAppend(&text, ThreadsText("colocated", placement.decode));
  } else {
    absl::StrAppend(&text, ThreadsText("prefill", placement.prefill), ", ",
                    ThreadsText("decode", placement.decode));
  }
  if (placement.exceeds_quota) {
    report->Note("threads",
                 absl::StrCat(text, "; more than the quota, so they are stopped at times"));
  } else {
    report->Good("threads", text);
  }
}

void CheckLimits(Report* report) {
  rlimit files{}, memlock{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &memlock);
  const std::string open_files = absl::StrCat(files.rlim_cur, " open files");
  if (files.rlim_cur < kWantedDescriptors) {
    report->Note("nofile", absl::StrCat(open_files, "; raise it for many clients (ulimit -n)"));
  } else {
    report->Good("nofile", open_files);
  }
  report->Good("memlock", memlock.rlim_cur == RLIM_INFINITY
                              ? "unlimited"
                              : absl::StrCat(memlock.rlim_cur >> 10,
                                             " KiB (enough for tcp; RDMA needs unlimited)"));
}

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};

void CheckTransfer(const Config& config, Report* report) {
  constexpr size_t kBytes = 4096;
  const std::unique_ptr<std::byte, Free> arena(
      static_cast<std::byte*>(std::aligned_alloc(kBytes, kBytes)));
  PoolView pool;
  pool.base = arena.get();
  pool.page_stride = kBytes;
  pool.n_pages = 1;
  pool.planes.push_back({.offset = 0, .bytes = kBytes});
  TransferOptions options = config.decode.worker.transfer;
  options.listen_host = config.cluster.worker_host;
  const TransferFacts facts{.incarnation = RandomId()};
  const auto transfer = Transfer::Start(options, facts, pool, [](TransferEvent) {});
  if (transfer.ok()) {
    report->Good("ucx", absl::StrCat("listens on ", (*transfer)->address()));
  } else {
    report->Bad("ucx", std::string(transfer.status().message()));
  }
}

// Whether all of the model's files are supported.
bool ReportFiles(const std::string& path, Report* report) {
  using Mark = ModelFinding::Mark;
  bool is_good = true;
  for (const ModelFinding& finding : InspectModel(path)) {
    if (finding.mark == Mark::kGood) report->Good(finding.name, finding.text);
    if (finding.mark == Mark::kNote) report->Note(finding.name, finding.text);
    if (finding.mark == Mark::kBad) report->Bad(finding.name, finding.text);
    is_good &= finding.mark != Mark::kBad;
  }
  return is_good;
}

void CheckModel(const Config& config, Report* report) {
  ModelConfig model = config.model;
  const absl::Status resolved = ResolveModel(&model);
  std::error_code error;
  if (!resolved.ok() && !std::filesystem::exists(model.path, error)) {
    report->Bad("model", std::string(resolved.message()));
    return;
  }
  if (!ReportFiles(model.path, report)) return;
  EngineOptions options = config.decode.worker.engine;
  options.model = model.path;
  options.limits = {};
  options.max_context = 0;
  options.cache_dir.clear();  // nothing is left behind
  const auto backend = LoadLabBackend(options, config.lab.engine);
  if (!backend.ok()) {
    report->Bad("model", std::string(backend.status().message()));
    return;
  }
  const ModelDesc& desc = (*backend)->model();
  const KvLayout& kv = (*backend)->kv_layout();
  report->Good("model", absl::StrFormat(
                            "%s, %s, %.1f M parameters, context %d", model.name, desc.architecture,
                            static_cast<double>(desc.n_parameters()) / 1e6, desc.max_positions));
  report->Good("kv cache",
               absl::StrFormat("%.1f KiB per token, pages of %d tokens, %s",
                               static_cast<double>(kv.page_bytes) / kv.page_tokens / 1024,
                               kv.page_tokens, kv.layout_id()));
  report->Good("fingerprint",
               absl::StrFormat("%016x, numerics %s on %s", (*backend)->model_fingerprint(),
                               (*backend)->numerics_id(), (*backend)->isa()));
}

}  // namespace

int RunDoctor(const Config& config) {
  SetLog(LogLevel::kError, "doctor");
  Report report;
  CheckThreads(config, &report);
  CheckCpu(&report);
  CheckLimits(&report);
  CheckTransfer(config, &report);
  if (!config.model.path.empty()) CheckModel(config, &report);
  return report.failed() ? 1 : 0;
}

}  // namespace baton
