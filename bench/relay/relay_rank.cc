#include "bench/relay/relay_rank.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <mutex>

#include "bench/relay/rank_process.h"
#include "bench/relay/rank_prompt.h"
#include "bench/relay/rank_stage.h"
#include "common/cpus.h"
#include "engine/load_backend.h"
#include "kvtransfer/links/ucx_link.h"
#include "lab/paced_link.h"
#include "worker/announce.h"

namespace baton {
namespace {

class RelayRank {
 public:
  absl::Status Serve() {
    std::string line;
    if (answers_ == nullptr) {
      return absl::InvalidArgumentError("relay-rank is started by baton bench relay only");
    }
    if (!std::getline(std::cin, line)) return absl::OkStatus();
    RETURN_IF_ERROR(Start(line));
    while (std::getline(std::cin, line)) {
      RankRun run;
      RETURN_IF_ERROR(FromLine(line, &run));
      SetNoise(run.noisy);
      RankPrompt part(parts_, run);
      SetPart(&part);
      absl::Status prepared = part.Prepare();
      Send("ready");
      if (!prepared.ok()) return prepared;
      if (!std::getline(std::cin, line)) return absl::OkStatus();
      absl::StatusOr<RankDone> done = part.Run();
      SetPart(nullptr);
      RETURN_IF_ERROR(done.status());
      Send(ToLine(*done));
    }
    return absl::OkStatus();
  }

 private:
  void Send(const std::string& line) {
    std::fprintf(answers_, "%s\n", line.c_str());
    std::fflush(answers_);
  }

  void SetNoise(bool noisy) {
    if (paced_link_ == nullptr) return;
    LinkPace pace = parts_.start.pace;
    if (!noisy) pace.noise = {};
    paced_link_->SetPace(pace);
  }

  absl::Status Start(const std::string& line) {
    RETURN_IF_ERROR(FromLine(line, &parts_.start));
    const RankStart& start = parts_.start;
    if (!start.cpus.empty() && !StayOnCpus(start.cpus)) {
      return absl::InvalidArgumentError("bench relay: a rank cannot be pinned to its CPUs");
    }
    ASSIGN_OR_RETURN(parts_.backend, LoadLabBackend(start.engine, start.lab));
    const KvLayout& layout = parts_.backend->kv_layout();
    parts_.rivals = dynamic_cast<RivalSlices*>(parts_.backend.get());
    const int64_t residual_bytes = parts_.rivals == nullptr ? 0 : parts_.rivals->residual_bytes();
    int n_pages = start.pool_pages > 0 ? start.pool_pages : layout.PagesFor(start.max_tokens);
    if (start.pool_pages == 0 && start.with_residuals)
      n_pages += 2 * PagesOfResiduals(start.max_tokens, residual_bytes, layout.page_bytes);
    ASSIGN_OR_RETURN(parts_.pool, KvPool::Create(layout, n_pages));
    parts_.backend->SetPages(parts_.pool->pages());
    const TransferFacts facts{.incarnation = start.incarnation,
                              .model_fingerprint = parts_.backend->model_fingerprint(),
                              .numerics_id = parts_.backend->numerics_id(),
                              .layout_id = layout.layout_id()};
    ASSIGN_OR_RETURN(
        parts_.transfer,
        Transfer::StartOver([this] { return MakeLink(); }, {}, facts, ViewOf(*parts_.pool),
                            [this](const TransferEvent& event) { OnEvent(event); }));
    RankStarted started;
    started.address = parts_.transfer->address();
    started.numerics_id = parts_.backend->numerics_id();
    started.isa = parts_.backend->isa();
    started.model = parts_.backend->model().name;
    started.n_layers = parts_.backend->model().n_layers;
    started.page_tokens = layout.page_tokens;
    started.page_bytes = layout.page_bytes;
    started.residual_bytes = residual_bytes;
    started.model_fingerprint = parts_.backend->model_fingerprint();
    Send(ToLine(started));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Link>> MakeLink() {  // link thread, inside Start
    ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeUcxLink("127.0.0.1"));
    const LinkPace& pace = parts_.start.pace;
    if (!pace.is_set()) return link;
    auto paced = std::make_unique<PacedLink>(std::move(link), pace);
    paced_link_ = paced.get();
    return paced;
  }

  void SetPart(RankPrompt* part) {
    std::lock_guard lock(mutex_);
    part_ = part;
  }
  void OnEvent(const TransferEvent& event) {  // link thread
    std::lock_guard lock(mutex_);
    if (part_ != nullptr) part_->OnEvent(event);
  }

  std::FILE* const answers_ = ::fdopen(kAnswerDescriptor, "w");
  std::mutex mutex_;
  RankPrompt* part_ = nullptr;       // the prompt under way
  PacedLink* paced_link_ = nullptr;  // the Transfer's; null: no pace
  RankParts parts_;                  // last: its link thread ends before the objects it calls
};

}  // namespace

int RunRelayRank() {
  const absl::Status status = RelayRank().Serve();
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton: bench relay: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton
