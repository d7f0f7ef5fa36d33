// What a step of a model has to do at least: multiply-adds (counted twice) and bytes read. The
// limits of `bench step` are these against the machine's peak and bandwidth.
#pragma once

#include <cstdint>

#include "engine/kv/kv_layout.h"
#include "engine/model/model_desc.h"

namespace baton {

// Multiply-adds, counted twice, apart where they are of different instructions.
struct StepFlops {
  double layers = 0, lm_head = 0;  // of weights in the model's formats of the two
  double always_bf16 = 0;          // of routers of experts, and between latents and heads
  double attention = 0;
  double linear() const { return layers + lm_head + always_bf16; }
};

class StepWork {
 public:
  // weight_bytes: of all packed weights. model and layout outlive the object.
  StepWork(const ModelDesc& model, const KvLayout& layout, int64_t weight_bytes);

  // Of tokens [first, end) of a prompt, the LM head for the last of them if it is the prompt's
  // last. Causal: token i attends to i + 1 keys, or to the window's; what lies beyond is not
  // counted. Nor is what the last layer need not do and the engine does not: all tokens but the
  // prompt's last end with its keys and values.
  StepFlops PrefillFlops(int first, int end, bool is_last) const;
  StepFlops PrefillFlops(int n) const { return PrefillFlops(0, n, true); }  // of a whole prompt
  // Of `rows` sequences' next tokens, each attending to `keys` keys.
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
  double token_flops_, token_bf16_flops_ = 0, head_flops_;  // by type
  double weight_bytes_, expert_share_ = 0;  // the share of the weights that are routed experts
};

}  // namespace baton
