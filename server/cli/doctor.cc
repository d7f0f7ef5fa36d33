#include "server/cli/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "bench/transfer_bench.h"
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
#include "kvtransfer/links/ucx_lanes.h"
#include "kvtransfer/transfer.h"
#include "server/cli/certificate_report.h"
#include "server/cli/fleet_report.h"
#include "server/cli/host_report.h"
#include "server/cli/model_report.h"
#include "server/config/model_folder.h"
#include "server/process/worker_placement.h"

namespace baton {
namespace {

constexpr int64_t kProbeBytes = int64_t{256} << 20;
constexpr int64_t kLinkBytes = int64_t{32} << 20;  // of a handoff

class Report {
 public:
  void Add(const Finding& finding) {
    static constexpr const char* kMarks[] = {"ok  ", "note", "BAD "};
    std::printf("%s  %-14s %s\n", kMarks[static_cast<size_t>(finding.mark)], finding.name.c_str(),
                finding.text.c_str());
    std::fflush(stdout);
    failed_ |= finding.mark == Finding::Mark::kBad;
  }
  void Add(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) Add(finding);
  }
  void Good(const std::string& name, const std::string& text) { Add(baton::Good(name, text)); }
  void Note(const std::string& name, const std::string& text) { Add(baton::Note(name, text)); }
  void Bad(const std::string& name, const std::string& text) { Add(baton::Bad(name, text)); }
  bool failed() const { return failed_; }

 private:
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
    const auto lanes = UcxLanes(config.cluster.worker_host, options.transport);
    if (!lanes.ok()) {
      report->Bad("ucx", std::string(lanes.status().message()));
      return;
    }
    report->Good("ucx", absl::StrCat("listens on ", (*transfer)->address(),
                                     ", transports taken: ", absl::StrJoin(*lanes, ", ")));
  } else {
    report->Bad("ucx", std::string(transfer.status().message()));
  }
}

// Whether all of the model's files are supported.
bool ReportFiles(const std::string& path, Report* report) {
  const std::vector<Finding> findings = InspectModel(path);
  report->Add(findings);
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& each) { return each.mark == Finding::Mark::kBad; });
}

// Returns what an engine of this host would announce; nothing: it cannot serve the model.
OwnModel CheckModel(const Config& config, Report* report) {
  ModelConfig model = config.model;
  const absl::Status resolved = ResolveModel(&model);
  std::error_code error;
  if (!resolved.ok() && !std::filesystem::exists(model.path, error)) {
    report->Bad("model", std::string(resolved.message()));
    return {};
  }
  if (!ReportFiles(model.path, report)) return {};
  EngineOptions options = config.decode.worker.engine;
  options.model = model.path;
  options.limits = {};
  options.max_context = 0;
  options.cache_dir.clear();  // nothing is left behind
  const auto backend = LoadLabBackend(options, config.lab.engine);
  if (!backend.ok()) {
    report->Bad("model", std::string(backend.status().message()));
    return {};
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
  return {.name = model.name,
          .fingerprint = absl::StrFormat("%016x", (*backend)->model_fingerprint()),
          .numerics_id = (*backend)->numerics_id()};
}

// How fast KV goes between two ends in this process, beside bare sockets.
void CheckLoopback(const Config& config, Report* report) {
  const KvTransport transport = config.decode.worker.transfer.transport;
  const auto results = MeasureTransfer({.seconds = 0.1,
                                        .handoff_bytes = kLinkBytes,
                                        .host = config.cluster.worker_host,
                                        .transport = transport});
  if (!results.ok()) {
    report->Bad("kv link", std::string(results.status().message()));
    return;
  }
  const auto find = [&](const char* name) {
    const auto found = std::find_if(results->begin(), results->end(),
                                    [&](const KernelResult& each) { return each.name == name; });
    return found == results->end() ? KernelResult{} : *found;
  };
  const KernelResult large = find("transfer_1024k"), small = find("handoff_64k");
  report->Good("kv link",
               absl::StrFormat("UCX, transport %s, within this host: %.1f GB/s (bare "
                               "sockets %.1f), a handoff of 64 KiB in %.2f ms",
                               NameOf(transport), large.value, large.limit, small.value));
}

void CheckFleet(const DoctorCommand& command, const OwnModel& own, Report* report) {
  const auto pages = FetchFleetPages(command.cluster_url, command.key_file);
  if (pages.ok()) {
    report->Add(InspectFleet(*pages, own));
  } else {
    report->Bad("cluster", std::string(pages.status().message()));
  }
}

}  // namespace

int RunDoctor(const Config& config, const DoctorCommand& command) {
  SetLog(LogLevel::kError, "doctor");
  Report report;
  CheckThreads(config, &report);
  CheckCpu(&report);
  report.Add(InspectHost(ReadHostFacts()));
  report.Add(InspectCertificates({{"server.tls_cert", config.server.http.tls.cert},
                                  {"server.tls_client_ca", config.server.http.tls.client_ca},
                                  {"cluster.tls_cert", config.cluster.tls.cert},
                                  {"cluster.tls_ca", config.cluster.tls.ca}},
                                 absl::Now()));
  CheckTransfer(config, &report);
  CheckLoopback(config, &report);
  OwnModel own;
  if (!config.model.path.empty()) own = CheckModel(config, &report);
  if (!command.cluster_url.empty()) CheckFleet(command, own, &report);
  return report.failed() ? 1 : 0;
}

}  // namespace baton
