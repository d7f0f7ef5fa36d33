#include "bench/relay/relay_rig.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "bench/relay/rank_inflows.h"
#include "bench/relay/rank_stage.h"
#include "common/check.h"
#include "common/cpus.h"

namespace baton {
namespace {

constexpr double kStartSeconds = 600;  // packing the weights of a large model takes minutes
constexpr double kRunSeconds = 600;

bool TakesPart(const RankRun& run) { return run.end > run.begin || !run.in.empty(); }

}  // namespace

absl::StatusOr<std::unique_ptr<RelayRig>> RelayRig::Start(const RelayRigOptions& options) {
  std::unique_ptr<RelayRig> rig(new RelayRig(options));
  RETURN_IF_ERROR(rig->StartProcesses());
  return rig;
}

absl::Status RelayRig::StartProcesses() {
  const std::vector<int> cpus = OwnCpus();
  const int needed = options_.ranks * options_.threads_per_rank;
  const bool has_own = needed <= static_cast<int>(cpus.size());
  for (int i = 0; i <= sink(); ++i) {
    started_.emplace_back();
    processes_.emplace_back();
    if ((i == wide() && !options_.with_wide) || (i == sink() && !options_.with_sink)) continue;
    RankStart start;
    start.engine = options_.engine;
    start.lab = options_.lab;
    start.engine.threads = i == wide() ? needed : options_.threads_per_rank;
    start.engine.spin_us = has_own ? 50 : 0;
    start.engine.limits.max_slice_tokens = options_.max_tokens;
    start.max_tokens = options_.max_tokens;
    const auto place = static_cast<size_t>(i);
    if (place < options_.pool_pages.size()) start.pool_pages = options_.pool_pages[place];
    start.with_residuals = options_.with_residuals;
    start.incarnation = static_cast<Incarnation>(i) + 1;
    start.pace = options_.pace;
    start.pace.worker = i;
    if (i >= ranks()) start.pace.noise = {};
    if (has_own && i < ranks()) {  // the rank's CPUs; the other two share all ranks' CPUs
      const auto first = cpus.begin() + i * options_.threads_per_rank;
      start.cpus.assign(first, first + options_.threads_per_rank);
    } else if (has_own) {
      start.cpus.assign(cpus.begin(), cpus.begin() + needed);
    }
    ASSIGN_OR_RETURN(processes_.back(), RankProcess::Start(options_.program));
    RETURN_IF_ERROR(processes_.back()->Send(ToLine(start)));
    // Processes start one after another: the first packs the weights, the others map them.
    ASSIGN_OR_RETURN(const std::string line, processes_.back()->Hear(kStartSeconds));
    RETURN_IF_ERROR(FromLine(line, &started_.back()));
  }
  return absl::OkStatus();
}

std::vector<RankRun> RelayRig::Runs(int tokens, uint64_t seed) const {
  RankRun run;
  run.tokens = tokens;
  run.seed = seed;
  return std::vector<RankRun>(processes_.size(), run);
}

std::vector<RankRun> RelayRig::ChainRuns(const std::vector<int>& slices, uint64_t seed) {
  BATON_CHECK(!slices.empty() && static_cast<int>(slices.size()) <= ranks());
  std::vector<RankRun> runs = Runs(std::accumulate(slices.begin(), slices.end(), 0), seed);
  int begin = 0;
  for (int i = 0; i < static_cast<int>(slices.size()); ++i) {
    RankRun& run = runs[static_cast<size_t>(i)];
    run.begin = begin;
    run.end = begin += slices[static_cast<size_t>(i)];
    if (i + 1 < static_cast<int>(slices.size())) Connect(i, i + 1, 0, run.end, runs);
  }
  return runs;
}

void RelayRig::Connect(int from_process, int to_process, int from, int to,
                       std::vector<RankRun>& runs) {
  BATON_CHECK(from % page_tokens() == 0 && to > from);
  const int first = from / page_tokens();
  Link(from_process, first, to_process, first, PagesOf(to) - first, runs);
}

void RelayRig::ConnectStages(int from_process, int to_process, int tokens,
                             std::vector<RankRun>& runs) {
  const int n_pages = PagesOfResiduals(tokens, started().residual_bytes, started().page_bytes);
  // Incoming pages lie behind the prompt's KV, outgoing pages behind the incoming ones.
  const int in = PagesOf(tokens);
  Link(from_process, in + n_pages, to_process, in, n_pages, runs);
}

void RelayRig::Link(int from_process, int from_page, int to_process, int to_page, int n_pages,
                    std::vector<RankRun>& runs) {
  const auto at = [](int i) { return static_cast<size_t>(i); };
  RankLink link{.ticket = next_ticket_++,
                .sink = static_cast<Incarnation>(to_process) + 1,
                .address = started_[at(to_process)].address,
                .first_page = from_page,
                .n_pages = n_pages};
  runs[at(from_process)].out.push_back(link);
  link.first_page = to_page;
  runs[at(to_process)].in.push_back(std::move(link));
}

absl::StatusOr<RelayRig::Outcome> RelayRig::Run(const std::vector<RankRun>& runs) {
  BATON_CHECK(runs.size() == processes_.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!TakesPart(runs[i])) continue;
    RETURN_IF_ERROR(processes_[i]->Send(ToLine(runs[i])));
    ASSIGN_OR_RETURN(const std::string line, processes_[i]->Hear(kRunSeconds));
    if (line != "ready") {
      return absl::InternalError(absl::StrCat("a process of the relay benchmark said ", line));
    }
  }
  Outcome outcome;
  outcome.ranks.resize(runs.size());
  outcome.begin = MonotonicSeconds();
  for (size_t i = 0; i < runs.size(); ++i) {
    if (TakesPart(runs[i])) RETURN_IF_ERROR(processes_[i]->Send("go"));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!TakesPart(runs[i])) continue;
    ASSIGN_OR_RETURN(const std::string line, processes_[i]->Hear(kRunSeconds));
    RETURN_IF_ERROR(FromLine(line, &outcome.ranks[i]));
  }
  return outcome;
}

}  // namespace baton
