// The input of one forward pass: flat arrays, no ownership, no strings.
// A step mixes prefill chunks and decode rows: both are "pieces", runs of consecutive positions of
// one sequence. The bits of a row's logits depend on (model, tokens, position) alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/rope.h"

namespace baton {

// A token that the host does not know yet: what logit row `logits` of the step before sampled.
constexpr int32_t FedToken(int logits) { return -1 - logits; }
constexpr bool IsFed(int32_t token) { return token < 0; }
constexpr int LogitsOfFed(int32_t token) { return -1 - token; }

struct StepBatch {
  std::span<const int32_t> tokens;       // (n_tokens) ids, or FedToken
  std::span<const int32_t> positions;    // (n_tokens) absolute, consecutive within a piece
  std::span<const int32_t> piece_begin;  // (n_pieces + 1) first row of each piece
  std::span<const int32_t> page_begin;   // (n_pieces + 1) first entry of each piece in `pages`
  // (page_begin.back()) page table entries (kv_pool.h) in sequence order; a piece's table covers
  // its last position.
  std::span<const int32_t> pages;
  std::span<const int32_t> logit_rows;  // (n_logits) ascending rows whose logits are wanted
  std::span<const RopeRange> ropes;  // (n_pieces) RoPE range of each piece's sequence, constant for
                                     // its life
  // (n_scored) ascending rows, none of them among logit_rows, whose logits are computed a few at a
  // time when the step is done (Backend::ScoredLogits).
  std::span<const int32_t> scored_rows{};

  int n_tokens() const { return static_cast<int>(tokens.size()); }
  int n_pieces() const { return static_cast<int>(piece_begin.size()) - 1; }
};

// Owns the arrays behind a StepBatch and fills them piece by piece. Reused from step to step so
// that a step allocates nothing once the arrays have grown to their largest size. Engine thread.
class StepBuilder {
 public:
  void Clear();
  // Appends the tokens at positions [first_position, first_position + tokens.size()) of a sequence
  // whose page table is `pages`; both are copied. Returns the step's row index of the first one.
  // CHECKs that there is a token.
  int AddPiece(std::span<const int32_t> tokens, int first_position, std::span<const int32_t> pages,
               RopeRange rope = RopeRange::kShort);
  // Asks for the logits of row `row`; CHECKs that rows come in ascending order. Returns the index
  // of the row in the step's logits.
  int WantLogits(int row);
  // Asks for rows [from, to) to be scored; CHECKs that rows come in ascending order. Returns the
  // index of the first among the step's scored rows.
  int WantScores(int from, int to);
  int n_tokens() const { return static_cast<int>(tokens_.size()); }
  StepBatch batch() const;  // valid until the builder changes

 private:
  std::vector<int32_t> tokens_, positions_, piece_begin_{0}, page_begin_{0}, pages_, logit_rows_;
  std::vector<int32_t> scored_rows_;
  std::vector<RopeRange> ropes_;
};

}  // namespace baton
