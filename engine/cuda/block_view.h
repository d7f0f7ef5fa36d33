// The metadata block of a step or slice (device/metadata_block.h) as kernels read it, and what the
// first kernel of a step makes of it for the others.
#pragma once

#include <cstdint>

namespace baton {

// Pointers into the block, which lies in memory of the GPU.
struct BlockView {
  int n_tokens = 0, n_pieces = 0, n_pages = 0, n_logits = 0, n_scored = 0, n_planes = 0;
  const int32_t* tokens = nullptr;  // (n_tokens) ids; negative: what logit row -1 - token sampled
  const int32_t* positions = nullptr;    // (n_tokens)
  const int32_t* piece_begin = nullptr;  // (n_pieces + 1)
  const int32_t* page_begin = nullptr;   // (n_pieces + 1)
  const int32_t* pages = nullptr;        // (n_pages)
  const int32_t* logit_rows = nullptr;   // (n_logits)
  const int32_t* scored_rows = nullptr;  // (n_scored)
  const int32_t* ropes = nullptr;        // (n_pieces) 0: short, 1: long
};

// Holds what kernels need of each row, found once per step.
struct StepRowsView {
  int32_t* tokens = nullptr;       // (rows) ids: those that are fed are filled in
  int32_t* pieces = nullptr;       // (rows)
  int32_t* logit_rows = nullptr;   // (n_logits), those of the block, at a place that is known to
  int32_t* scored_rows = nullptr;  // (n_scored) the host when it captures a graph
};

#ifdef __CUDACC__
#define BATON_HOST_DEVICE __host__ __device__
#else
#define BATON_HOST_DEVICE
#endif

// `block` may be read.
BATON_HOST_DEVICE inline BlockView ViewOf(const int32_t* block) {
  BlockView view;
  view.n_tokens = block[0];
  view.n_pieces = block[1];
  view.n_pages = block[2];
  view.n_logits = block[3];
  view.n_scored = block[4];
  view.n_planes = block[5];
  const int32_t* at = block + 6;
  view.tokens = at;
  view.positions = at += view.n_tokens;
  view.piece_begin = at += view.n_tokens;
  view.page_begin = at += view.n_pieces + 1;
  view.pages = at += view.n_pieces + 1;
  at += view.n_pages;  // frames follow: no GPU reads them
  view.logit_rows = at += int64_t{view.n_pages} * view.n_planes;
  view.scored_rows = at += view.n_logits;
  view.ropes = at + view.n_scored;
  return view;
}

}  // namespace baton
