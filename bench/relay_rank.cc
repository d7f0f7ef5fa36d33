#include "bench/relay_rank.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/made_up_prompt.h"
#include "bench/rank_inflows.h"
#include "bench/rank_orders.h"
#include "bench/rank_process.h"
#include "common/cpus.h"
#include "engine/backend.h"
#include "engine/kv_pool.h"
#include "engine/step.h"
#include "kvtransfer/transfer.h"
#include "server/worker/pool_view.h"

namespace baton {
namespace {

// Anonymous and shared pages that were resident at most; those of files, such as weights, do not
// count.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  int64_t peak = 0, file = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) peak = std::atoll(line.c_str() + 6);
    if (line.rfind("RssFile:", 0) == 0) file = std::atoll(line.c_str() + 8);
  }
  return (peak - file) * 1024;
}

// What the process has for all its prompts.
struct RankParts {
  RankStart start;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<Transfer> transfer;
};

// One prompt's part of one process.
class PromptPart {
 public:
  PromptPart(RankParts& parts, const RankRun& run)
      : parts_(parts),
        run_(run),
        n_layers_(parts.backend->model().n_layers),
        page_tokens_(parts.pool->layout().page_tokens),
        part_tokens_(parts.start.engine.max_step_tokens),
        pieces_(PiecesOf(run)),
        inflows_(run.in, run.out, n_layers_,
                 [this](int plane, int first, int n) { Forward(plane, first, n); }) {}

  // Pages are taken.
  absl::Status Prepare() {
    int tokens = run_.end;  // that it holds KV of
    for (const RankLink& link : run_.in) {
      tokens = std::max(tokens, (link.first_page + link.n_pages) * page_tokens_);
    }
    if (!parts_.pool->Take(parts_.pool->layout().PagesFor(tokens), &pages_)) {
      return absl::ResourceExhaustedError("a rank's pool is smaller than the prompt");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<RankDone> Run() {
    const uint64_t sent = parts_.transfer->counters().bytes_sent;
    for (const RankLink& link : run_.out) Open(link);
    // Nothing comes before it is awaited, so whatever is to go on has a handoff to go by.
    for (const RankLink& link : run_.in) {
      parts_.transfer->Post(AwaitInflow{TicketOf(link), 1, Pages(link.first_page, link.n_pages)});
    }
    RankDone done;
    if (run_.end > run_.begin) {
      RETURN_IF_ERROR(run_.by_steps ? ComputeBySteps() : ComputeSlice());
      done.computed = MonotonicSeconds();
      if (run_.end == run_.tokens) done.digest = absl::StrFormat("%016x", Digest());
    }
    for (const RankLink& link : run_.out) {
      parts_.transfer->Post(CommitHandoff{TicketOf(link), {.n_tokens = run_.tokens}});
    }
    RETURN_IF_ERROR(inflows_.AwaitEnd(&done.arrived));
    done.waited = inflows_.waited();
    done.layers = layers_;
    done.projections = projections_;
    done.bytes_sent = static_cast<int64_t>(parts_.transfer->counters().bytes_sent - sent);
    done.kv_bytes = static_cast<int64_t>(pages_.size()) * parts_.pool->layout().page_bytes;
    done.peak_memory = PeakMemory();
    parts_.pool->Give(pages_);
    return done;
  }

  void OnEvent(const TransferEvent& event) { inflows_.OnEvent(event); }  // link thread

 private:
  struct Range {
    int begin, end;  // tokens
  };
  static std::vector<Range> RangesOf(const std::vector<int>& ends) {
    std::vector<Range> ranges;
    for (size_t i = 0; i + 1 < ends.size(); i += 2) ranges.push_back({ends[i], ends[i + 1]});
    return ranges;
  }
  static std::vector<Range> PiecesOf(const RankRun& run) {
    return run.pieces.empty() ? std::vector<Range>{{run.begin, run.end}} : RangesOf(run.pieces);
  }
  int rows() const {
    int n = 0;
    for (const Range& piece : pieces_) n += piece.end - piece.begin;
    return n;
  }
  bool is_tail() const { return run_.end == run_.tokens; }
  std::vector<int32_t> Pages(int first, int n) const {
    return {pages_.begin() + first, pages_.begin() + first + n};
  }
  void Open(const RankLink& link) {
    Ticket ticket{.id = TicketOf(link),
                  .epoch = 1,
                  .request_id = link.ticket,
                  .sink = link.sink,
                  .kv_pages = link.n_pages,
                  .promise_pages = 0};
    SignTicket(ClusterKey{}, ticket);
    parts_.transfer->Post(OpenHandoff{ticket, link.sink, link.address});
  }

  // Pages [first, first + n) of a plane are final here: to those who are to have them.
  void Send(int plane, int first, int n) {
    for (const RankLink& link : run_.out) {
      const int from = std::max(first, link.first_page);
      const int to = std::min(first + n, link.first_page + link.n_pages);
      if (from >= to) continue;
      parts_.transfer->Post(SendCells{.ticket_id = TicketOf(link),
                                      .plane = plane,
                                      .first_page = from - link.first_page,
                                      .pages = Pages(from, to - from)});
    }
  }
  // Pages that came from others; link thread.
  void Forward(int plane, int first, int n) {
    if (run_.cuts_through) Send(plane, first, n);
  }

  template <typename Do>
  void ForParts(const Do& compute) {
    for (int from = 0; from < rows(); from += part_tokens_) {
      compute(from, std::min(from + part_tokens_, rows()));
    }
  }

  absl::Status ComputeSlice() {
    const std::vector<int32_t> prompt =
        MadeUpPrompt(run_.tokens, run_.seed, parts_.backend->model().vocab);
    step_.Clear();
    for (const Range& piece : pieces_) {
      step_.AddPiece(std::span(prompt).subspan(piece.begin, piece.end - piece.begin), piece.begin,
                     pages_, parts_.backend->model().rope.RangeOf(run_.tokens));
    }
    if (is_tail()) step_.WantLogits(rows() - 1);
    if (!run_.key_ranges.empty() && parts_.backend->rival_slices() == nullptr) {
      return absl::UnimplementedError("this engine meets keys in their order only");
    }
    parts_.backend->BeginSlice(step_.batch());
    const double begin = MonotonicSeconds();
    for (int layer = 0; layer + 1 < n_layers_; ++layer) RETURN_IF_ERROR(ComputeLayer(layer));
    layers_ = MonotonicSeconds() - begin;
    return ComputeLayer(n_layers_ - 1);
  }

  absl::Status ComputeLayer(int layer) {
    Backend& backend = *parts_.backend;
    const int own_page = run_.begin / page_tokens_;
    int sent = own_page;
    ForParts([&](int from, int to) {
      const double begin = MonotonicSeconds();
      backend.ProjectSlice(layer, from, to);
      if (layer + 1 < n_layers_) projections_ += MonotonicSeconds() - begin;
      // The last page of a part that is no whole page waits for the next part.
      const bool is_end = to == rows();
      const int end =
          is_end ? parts_.pool->layout().PagesFor(run_.end) : (run_.begin + to) / page_tokens_;
      if (!run_.cuts_through || pieces_.size() > 1) return;
      Send(layer, sent, end - sent);
      sent = end;
    });
    if (pieces_.size() > 1) {
      for (const Range& piece : pieces_) {
        const int first = piece.begin / page_tokens_;
        Send(layer, first, parts_.pool->layout().PagesFor(piece.end) - first);
      }
    }
    if (!run_.key_ranges.empty()) {
      RETURN_IF_ERROR(AttendInRotation(layer));
    } else if (run_.streams) {
      RETURN_IF_ERROR(AttendAsKeysCome(layer));
    } else if (!run_.in.empty()) {
      RETURN_IF_ERROR(inflows_.AwaitPlane(layer));
    }
    if (!run_.cuts_through) Send(layer, 0, parts_.pool->layout().PagesFor(run_.end));
    if (layer + 1 < n_layers_) {
      ForParts([&](int from, int to) { backend.FinishSlice(layer, from, to); });
    } else if (is_tail()) {
      backend.FinishSlice(layer, rows() - 1, rows());
    }
    return absl::OkStatus();
  }

  // Segments of keys as they come, in ascending order, until all before the slice are there.
  absl::Status AttendAsKeysCome(int layer) {
    const int before = run_.begin / page_tokens_;
    const bool is_attended = layer + 1 < n_layers_ || is_tail();
    int attended = 0;  // keys
    while (true) {
      const int pages = inflows_.PagesThere(layer);
      if (pages >= before) return absl::OkStatus();
      const int keys = pages * page_tokens_ / kSliceKeys * kSliceKeys;
      if (keys > attended && is_attended) {
        attended = keys;
        ForParts([&](int from, int to) { parts_.backend->AttendSlice(layer, from, to, keys); });
        continue;
      }
      RETURN_IF_ERROR(inflows_.AwaitMore(layer, pages));
    }
  }

  // Keys of each owner as they come around the ring.
  absl::Status AttendInRotation(int layer) {
    const bool is_last = layer + 1 == n_layers_;
    for (const Range& keys : RangesOf(run_.key_ranges)) {
      const int first = keys.begin / page_tokens_;
      RETURN_IF_ERROR(inflows_.AwaitPages(layer, first, keys.end / page_tokens_ - first));
      const auto attend = [&](int from, int to) {
        parts_.backend->rival_slices()->AttendKeys(layer, from, to, keys.begin, keys.end);
      };
      if (!is_last) {
        ForParts(attend);
      } else if (is_tail()) {
        attend(rows() - 1, rows());
      }
    }
    return absl::OkStatus();
  }

  // As a worker computes a prompt of its own.
  absl::Status ComputeBySteps() {
    const std::vector<int32_t> prompt =
        MadeUpPrompt(run_.tokens, run_.seed, parts_.backend->model().vocab);
    for (int begin = 0; begin < run_.tokens; begin += part_tokens_) {
      const int n = std::min(part_tokens_, run_.tokens - begin);
      step_.Clear();
      step_.AddPiece(std::span(prompt).subspan(begin, n), begin, pages_,
                     parts_.backend->model().rope.RangeOf(run_.tokens));
      if (begin + n == run_.tokens) step_.WantLogits(n - 1);
      parts_.backend->Begin(step_.batch());
      for (int layer = 0; layer < n_layers_; ++layer) {
        parts_.backend->RunLayers(layer, layer + 1);
        Send(layer, begin / page_tokens_, (n + page_tokens_ - 1) / page_tokens_);
      }
    }
    return absl::OkStatus();
  }
  uint64_t Digest() const {
    const Backend& backend = *parts_.backend;
    return LogitsDigest(run_.by_steps ? backend.logits(0) : backend.slice_logits(), 0);
  }

  RankParts& parts_;
  const RankRun run_;
  const int n_layers_, page_tokens_, part_tokens_;
  const std::vector<Range> pieces_;
  std::vector<int32_t> pages_;
  StepBuilder step_;
  double layers_ = 0, projections_ = 0;  // seconds
  RankInflows inflows_;
};

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
      PromptPart part(parts_, run);
      SetPart(&part);
      absl::Status prepared = part.Prepare();
      Say("ready");
      if (!prepared.ok()) return prepared;
      if (!std::getline(std::cin, line)) return absl::OkStatus();
      absl::StatusOr<RankDone> done = part.Run();
      SetPart(nullptr);
      RETURN_IF_ERROR(done.status());
      Say(ToLine(*done));
    }
    return absl::OkStatus();
  }

 private:
  void Say(const std::string& line) {
    std::fprintf(answers_, "%s\n", line.c_str());
    std::fflush(answers_);
  }

  absl::Status Start(const std::string& line) {
    RETURN_IF_ERROR(FromLine(line, &parts_.start));
    const RankStart& start = parts_.start;
    if (!start.cpus.empty() && !StayOnCpus(start.cpus)) {
      return absl::InvalidArgumentError("bench relay: a rank cannot be pinned to its CPUs");
    }
    ASSIGN_OR_RETURN(parts_.backend, LoadBackend(start.engine));
    const KvLayout& layout = parts_.backend->kv_layout();
    ASSIGN_OR_RETURN(parts_.pool, KvPool::Create(layout, layout.PagesFor(start.max_tokens)));
    parts_.backend->SetPool(parts_.pool.get());
    TransferOptions options;
    options.incarnation = start.incarnation;
    options.model_fingerprint = parts_.backend->model_fingerprint();
    options.numerics_id = parts_.backend->numerics_id();
    options.layout_id = layout.layout_id();
    options.pace = start.pace;
    ASSIGN_OR_RETURN(parts_.transfer,
                     Transfer::Start(options, ViewOf(*parts_.pool),
                                     [this](const TransferEvent& event) { OnEvent(event); }));
    RankStarted started;
    started.address = parts_.transfer->address();
    started.numerics_id = parts_.backend->numerics_id();
    started.isa = parts_.backend->isa();
    started.model = parts_.backend->model().name;
    started.n_layers = parts_.backend->model().n_layers;
    started.page_tokens = layout.page_tokens;
    started.page_bytes = layout.page_bytes;
    started.model_fingerprint = parts_.backend->model_fingerprint();
    Say(ToLine(started));
    return absl::OkStatus();
  }

  void SetPart(PromptPart* part) {
    std::lock_guard lock(mutex_);
    part_ = part;
  }
  void OnEvent(const TransferEvent& event) {  // link thread
    std::lock_guard lock(mutex_);
    if (part_ != nullptr) part_->OnEvent(event);
  }

  std::FILE* const answers_ = ::fdopen(kAnswerDescriptor, "w");
  std::mutex mutex_;
  PromptPart* part_ = nullptr;  // the prompt under way
  RankParts parts_;             // last: its link thread ends before what it calls
};

}  // namespace

int RunRelayRank() {
  const absl::Status status = RelayRank().Serve();
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton: bench relay: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton
