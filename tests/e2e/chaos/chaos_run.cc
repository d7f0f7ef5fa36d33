#include "tests/e2e/chaos/chaos_run.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/load_client.h"
#include "bench/load/metrics_page.h"
#include "tests/e2e/chaos/audit.h"
#include "tests/e2e/chaos/explained.h"
#include "tests/e2e/chaos/lab_cluster.h"
#include "tests/e2e/chaos/served_cluster.h"
#include "tests/e2e/chaos/stall.h"

namespace baton {
namespace {

constexpr int kLearners = 4, kProbers = 8;
constexpr absl::Duration kHealLimit = absl::Seconds(30), kQuietLimit = absl::Seconds(15);
constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr int kCannotRun = 3;

class ChaosRun {
 public:
  explicit ChaosRun(const ChaosOptions& options) : options_(options), profile_(options.profile) {}
  int Run();

 private:
  absl::Status Learn();
  absl::Status Start();
  void Load();
  void Probe();
  void Audit();
  void Summarize();
  void KeepLogs() const;
  void Print(const std::string& line) const {
    std::printf("%8.3f  %s\n", absl::ToDoubleSeconds(absl::Now() - began_), line.c_str());
    std::fflush(stdout);
  }
  void Violated(std::string line) { violations_.push_back(std::move(line)); }
  void PrintStalls() const;
  void PrintCancels();
  void PrintPreemptions();

  const ChaosOptions options_;
  const Profile profile_;
  const absl::Time began_ = absl::Now();
  std::string folder_;
  std::vector<Question> questions_;
  std::unique_ptr<Cluster> cluster_;
  LabCluster* lab_ = nullptr;
  std::vector<DecodeReservations> before_, after_;
  std::vector<FaultRecord> faults_;
  Tally tally_, probe_;
  int64_t n_left_ = 0;
  absl::Duration loaded_, healed_;
  std::vector<std::string> violations_;
};

// Learns the answers without faults from one worker for both phases, with room for all.
absl::Status ChaosRun::Learn() {
  std::vector<std::string> args = {options_.model, "--colocated", "--decode=1"};
  ASSIGN_OR_RETURN(const std::unique_ptr<ServedBaton> served, ServedBaton::Start(args));
  ASSIGN_OR_RETURN(const HttpResponse models, served->client().Get("/v1/models"));
  boost::json::error_code bad;
  const boost::json::value page = boost::json::parse(models.body, bad);
  if (bad) return absl::InternalError("/v1/models is not JSON: " + models.body);
  CatalogueOptions catalogue = profile_.catalogue;
  catalogue.seed = options_.seed;
  catalogue.vocab = static_cast<int>(page.at("data").at(0).at("meta").at("n_vocab").as_int64());
  catalogue.has_text = !options_.model.starts_with("random:");
  for (ChaosRequest& request : MakeCatalogue(catalogue)) {
    questions_.push_back(Question{std::move(request), Answer()});
  }
  RETURN_IF_ERROR(LearnAnswers(served->url(), kLearners, &questions_));
  return served->Terminate().status();
}

absl::Status ChaosRun::Start() {
  std::vector<std::string> args = {options_.model};
  args.insert(args.end(), profile_.server_args.begin(), profile_.server_args.end());
  // The catalogue repeats, so reuse of KV leaves few prompts to compute; odd seeds turn reuse off.
  if (options_.seed % 2 == 1) {
    args.insert(args.end(), {"--prefill.reuse_kv=false", "--decode.reuse_kv=false"});
  }
  if (profile_.needs_lab) {
    ASSIGN_OR_RETURN(std::unique_ptr<LabCluster> cluster,
                     LabCluster::Start(args, folder_, Wires::kNamespaces));
    lab_ = cluster.get();
    cluster_ = std::move(cluster);
  } else {
    ASSIGN_OR_RETURN(cluster_, ServedCluster::Start(args));
  }
  // Connections between all pairs, and memory that is allocated once, belong to the baseline. This
  // pass also shows that the cluster under test gives the learned answers without faults.
  const Tally warm = AskAll(cluster_->url(), questions_, kProbers);
  if (!warm.complaints.empty()) {
    return absl::InternalError("before any fault: " + warm.complaints.front());
  }
  for (const std::string& held : AwaitQuiet(cluster_.get(), kQuietLimit)) {
    Violated("before any fault: " + held);
  }
  before_ = TakeReservations(cluster_.get());
  return absl::OkStatus();
}

void ChaosRun::Load() {
  const absl::Time start = absl::Now();
  Clients clients(cluster_->url(), profile_, &questions_, options_.seed);
  FaultInjector injector(cluster_.get(), &clients, lab_,
                         [this](const std::string& line) { Print(line); });
  if (profile_.n_cancels > 0) {
    const absl::Time end = start + options_.length;
    while (clients.n_left() < profile_.n_cancels && absl::Now() < end) absl::SleepFor(kLook);
    if (clients.n_left() < profile_.n_cancels) {
      Violated(absl::StrFormat("only %d of %d cancels in the given time", clients.n_left(),
                               profile_.n_cancels));
    }
  } else {
    injector.Run(MakeSchedule(profile_, options_.length, options_.seed), start + options_.length);
  }
  Print("the faults are over; the clients end what runs");
  clients.Stop();
  loaded_ = absl::Now() - start;
  n_left_ = clients.n_left();
  tally_ = clients.Take();
  faults_ = injector.records();
  for (const std::string& failure : injector.failures()) Violated(failure);
}

// Checks that everything works again after healing, without a manual restart.
void ChaosRun::Probe() {
  const absl::Time start = absl::Now();
  for (const std::string& held : AwaitQuiet(cluster_.get(), kHealLimit)) {
    Violated("not healed: " + held);
  }
  healed_ = absl::Now() - start;
  probe_ = AskAll(cluster_->url(), questions_, kProbers);
  for (const std::string& complaint : probe_.complaints) Violated("after healing: " + complaint);
}

void ChaosRun::Audit() {
  for (const std::string& held : AwaitQuiet(cluster_.get(), kQuietLimit)) {
    Violated("still held: " + held);
  }
  after_ = TakeReservations(cluster_.get());
  for (const std::string& complaint : Growth(before_, after_, GrowthLimits())) {
    Violated(complaint);
  }
  std::map<std::string, bool> was_hit;
  for (const FaultRecord& fault : faults_) {
    if (fault.kind == FaultKind::kKill || fault.kind == FaultKind::kTerminate) {
      was_hit[fault.victim] = true;
    }
  }
  for (const DecodeReservations& old : before_) {
    for (const DecodeReservations& now : after_) {
      if (now.member.name == old.member.name && now.member.pid != old.member.pid &&
          !was_hit[old.member.name]) {
        Violated(old.member.name + " is a new process though no fault ended the old one");
      }
    }
  }
  PrintCancels();
  PrintPreemptions();
  const absl::Status stopped = cluster_->Stop();
  if (!stopped.ok()) Violated(std::string(stopped.message()));
  for (const std::string& complaint : LogComplaints(cluster_->Log(), faults_)) Violated(complaint);
}

void ChaosRun::PrintCancels() {
  if (n_left_ == 0) return;
  std::printf("\nclients that went away    %d, %.0f per second\n", static_cast<int>(n_left_),
              static_cast<double>(n_left_) / absl::ToDoubleSeconds(loaded_));
  constexpr char kLatency[] = "baton_cancel_latency_seconds";
  for (const Member& member : cluster_->Members()) {
    if (!member.metrics) continue;
    const auto page = MetricsPage::Fetch(*member.metrics);
    if (!page.ok() || !page->Has(std::string(kLatency) + "_count")) continue;
    std::printf("cancel latency %-10s p50 <= %.2f ms, p99 <= %.2f ms, all <= %.2f ms of %.0f\n",
                member.name.c_str(), 1000 * page->Quantile(kLatency, 0.5),
                1000 * page->Quantile(kLatency, 0.99), 1000 * page->Quantile(kLatency, 1),
                page->Sum(std::string(kLatency) + "_count"));
  }
}

void ChaosRun::PrintPreemptions() {
  double n = 0;
  for (const Member& member : cluster_->Members()) {
    const auto page = member.metrics ? MetricsPage::Fetch(*member.metrics)
                                     : absl::StatusOr<MetricsPage>(absl::NotFoundError(""));
    if (page.ok()) n += page->Sum("baton_preemptions_total");
  }
  std::printf("preemptions               %.0f, by the workers that live\n", n);
}

void ChaosRun::PrintStalls() const {
  const Stalls stalls = FindStalls(tally_.records, faults_);
  const Distribution gap(stalls.gap_s), excess(stalls.excess_s);
  std::printf("stall after kill -9       %d streams; gap p50 %.3f p99 %.3f max %.3f s\n",
              static_cast<int>(gap.values.size()), gap.percentile(50), gap.percentile(99),
              gap.percentile(100));
  std::printf("  less prefill again      p50 %.3f p99 %.3f max %.3f s (bound of p99: %.1f s)\n",
              excess.percentile(50), excess.percentile(99), excess.percentile(100),
              kMaxExcessSeconds);
}

void ChaosRun::Summarize() {
  const Stalls stalls = FindStalls(tally_.records, faults_);
  const double p99 = Distribution(stalls.excess_s).percentile(99);
  if (profile_.bounds_stalls && p99 > kMaxExcessSeconds) {
    Violated(absl::StrFormat("streams stood still for %.3f s (p99) beyond computing again", p99));
  }
  for (const std::string& complaint : tally_.complaints) Violated(complaint);
  for (const std::string& complaint : UnexplainedRefusals(
           tally_.records, faults_, kPrefillWorkers + kDecodeWorkers, profile_.n_clients))
    Violated(complaint);
  const int stands = StandStills(cluster_->Log());
  if (stands > 0 && StopsNothing(profile_))
    Violated(
        absl::StrFormat("%d engines were said to stand still, and nothing stopped any", stands));

  std::printf("\n%s\n", ReservationsTable(before_, after_).c_str());
  int n_by_kind[kFaultKinds] = {}, n_seen[4] = {};
  for (const FaultRecord& fault : faults_) {
    ++n_by_kind[static_cast<int>(fault.kind)];
    if (fault.at_moment) ++n_seen[static_cast<int>(fault.moment)];
  }
  std::printf("profile %s, seed %d, %s under load, healed in %s\n", profile_.name.c_str(),
              static_cast<int>(options_.seed), absl::FormatDuration(loaded_).c_str(),
              absl::FormatDuration(healed_).c_str());
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    if (n_by_kind[kind] == 0) continue;
    std::printf("%-25s %d\n", FaultName(static_cast<FaultKind>(kind)), n_by_kind[kind]);
  }
  std::printf("of these at prefill %d, at transfer %d, at decode %d\n", n_seen[1], n_seen[2],
              n_seen[3]);
  int64_t n_requests = 0;
  for (const int64_t n : tally_.n_by_verdict) n_requests += n;
  std::printf("requests                  %d, %d tokens, %d moved to other workers\n",
              static_cast<int>(n_requests), static_cast<int>(tally_.n_tokens),
              static_cast<int>(tally_.n_moved));
  for (int verdict = 0; verdict < kVerdicts; ++verdict) {
    std::printf("  %-23s %d\n", VerdictName(static_cast<Verdict>(verdict)),
                static_cast<int>(tally_.n_by_verdict[verdict]));
  }
  if (profile_.impossible > 0) {
    std::printf("impossible, refused       %d\n", static_cast<int>(tally_.n_impossible));
  }
  std::printf("engines standing still    %d times in the log%s\n", stands,
              StopsNothing(profile_) ? ", where nothing stops any" : "");
  PrintStalls();
  std::printf("after healing             %d of %d requests exact\n",
              static_cast<int>(probe_.n_by_verdict[static_cast<int>(Verdict::kExact)]),
              static_cast<int>(questions_.size()));
  for (const std::string& violation : violations_) std::printf("VIOLATION %s\n", violation.c_str());
  std::printf("%s: %d violations\n", violations_.empty() ? "passed" : "FAILED",
              static_cast<int>(violations_.size()));
}

void ChaosRun::KeepLogs() const {
  if (cluster_ == nullptr) return;
  std::ofstream(folder_ + "/cluster.log") << cluster_->Log();
  std::printf("the servers' logs are in %s\n", folder_.c_str());
}

int ChaosRun::Run() {
  folder_ = absl::StrFormat("%s/baton_chaos_%s_%d_%d", options_.log_folder, profile_.name,
                            options_.seed, ::getpid());
  std::filesystem::create_directories(folder_);
  if (profile_.needs_lab) {
    const auto trial = NetworkLab::Build({"trial"});
    if (!trial.ok()) {
      std::printf(
          "NOT RUN: the profile %s needs network namespaces, which this machine refuses: "
          "%s\nNothing was shown.\n",
          profile_.name.c_str(), std::string(trial.status().message()).c_str());
      return kCannotRun;
    }
  }
  Print(absl::StrFormat("profile %s, seed %d", profile_.name, options_.seed));
  Print("learning the answers from an undisturbed run");
  absl::Status status = Learn();
  if (status.ok()) {
    Print(absl::StrFormat("%d answers learned; starting the cluster", questions_.size()));
    status = Start();
  }
  if (!status.ok()) {
    std::printf("FAILED before any fault: %s\n", std::string(status.message()).c_str());
    KeepLogs();
    return 1;
  }
  Print("all answers equal; the load begins");
  Load();
  Probe();
  Audit();
  Summarize();
  if (!violations_.empty()) {
    KeepLogs();
    return 1;
  }
  std::filesystem::remove_all(folder_);
  return 0;
}

}  // namespace

int RunChaos(const ChaosOptions& options) { return ChaosRun(options).Run(); }

}  // namespace baton
