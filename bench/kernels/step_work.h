// The minimum work of a model's step: multiply-adds (counted twice) and bytes read. The
// limits of `bench step` are these against the machine's peak and bandwidth.
#pragma once

#include <cstdint>

#include "engine/kv/kv_layout.h"
#include "engine/model/model_desc.h"

namespace baton {

// Multiply-adds, counted twice, grouped by the instruction that computes them.
struct StepFlops {
  double layers = 0, lm_head = 0;  // with weights in the formats of layers and LM head
  double always_bf16 = 0;          // expert routers, and products between latents and heads
  double attention = 0;
  double linear() const { return layers + lm_head + always_bf16; }
};

class StepWork {
 public:
  // weight_bytes: all packed weights. model and layout outlive the object.
  StepWork(const ModelDesc& model, const KvLayout& layout, int64_t weight_bytes);

  // Work of a prompt's tokens [first, end). is_last: the LM head runs for the last of them. Causal:
  // token i attends to i + 1 keys, or to those of its window; masked keys are not counted. In the
  // last layer only keys and values are counted for all tokens but the prompt's last: the engine
  // skips the rest.
  StepFlops PrefillFlops(int first, int end, bool is_last) const;
  StepFlops PrefillFlops(int n) const { return PrefillFlops(0, n, true); }  // a whole prompt
  // Work of one decode step: one token of each of `rows` sequences, attending to `keys` keys.
  StepFlops DecodeFlops(int rows, double keys) const;
  // The weights once (of experts those that so many rows choose on average), and the rows' KV.
  double DecodeBytes(int rows, double keys) const;

  double token_flops() const { return token_flops_ + token_bf16_flops_; }  // linear, one token
  double head_flops() const { return head_flops_; }                        // LM head of one row
  double pair_flops() const;  // one query, one key, all layers

 private:
  double PairFlops(int layer) const;
  void AddAfterAttention(int layer, double tokens, StepFlops* flops) const;
  double PairsSeen(int layer, double end) const;
  double KeysSeen(int layer, double keys) const;

  const ModelDesc& model_;
  const KvLayout& layout_;
  double token_flops_, token_bf16_flops_ = 0, head_flops_;  // one token or row, by weight type
  double weight_bytes_, expert_share_ = 0;  // the share of the weights that are routed experts
};

}  // namespace baton
