// One prompt's part of one process of the relay benchmark: its slice in a worker's order (SliceRun)
// or in that of another scheme, the KV that it passes on, and the KV that it receives. Engine
// thread, except OnEvent.
#pragma once

#include <string>
#include <vector>

#include "bench/relay/rank_inflows.h"
#include "bench/relay/rank_orders.h"
#include "bench/relay/rank_parts.h"
#include "engine/step/step.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/slice_run.h"

namespace baton {

class RankPrompt {
 public:
  RankPrompt(RankParts& parts, const RankRun& run);

  absl::Status Prepare();  // takes pages
  absl::StatusOr<RankDone> Run();
  void OnEvent(const TransferEvent& event) { inflows_.OnEvent(event); }  // link thread

 private:
  struct Range {
    int begin, end;  // tokens
  };
  static std::vector<Range> RangesOf(const std::vector<int>& ends);
  static std::vector<Range> PiecesOf(const RankRun& run);

  int rows() const;
  bool is_tail() const { return run_.end == run_.tokens; }
  bool has_logits() const {
    return is_tail() && (run_.chunks.empty() || run_.end_layer == n_layers_);
  }
  std::vector<int32_t> Pages(int first, int n) const;
  void Open(const RankLink& link);
  void Send(int plane, int first, int n);
  void SendProjected(const SliceBlock& block);
  void SendPrefixes(const SliceRun& run);
  absl::Status Compute();
  absl::Status ComputeSlice();
  absl::Status ComputeBlocks(SliceRun& run);
  void ComputeBlock(const SliceBlock& block);
  absl::Status AttendInRotation(int layer);
  void ComputeBySteps();
  void DescribeLayers(RankDone* done);
  std::span<const float> Logits() const;

  RankParts& parts_;
  const RankRun run_;
  const int n_layers_, page_tokens_, part_tokens_;
  const std::vector<Range> pieces_;
  std::vector<int32_t> pages_;
  StepBuilder step_;
  int sent_planes_ = 0;                // planes of whole prefixes that were sent
  std::vector<double> layer_seconds_;  // of the layers except the last
  double projections_ = 0;             // seconds in them
  RankInflows inflows_;
};

}  // namespace baton
