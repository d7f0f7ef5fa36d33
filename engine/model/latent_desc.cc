#include "engine/model/latent_desc.h"

#include "absl/strings/str_format.h"
#include "engine/model/json_fields.h"

namespace baton {

LatentDesc ReadLatent(JsonFields& fields) {
  constexpr int kMaxRank = 512, kMaxRotated = 64, kMaxDim = 512;  // limits of the attention kernels
  constexpr int kMaxQueryRank = 1 << 16, kDefaultQueryRank = 1536;
  LatentDesc latent;
  latent.rank = fields.Int("kv_lora_rank", 1, kMaxRank);
  latent.plain_dim = fields.Int("qk_nope_head_dim", 1, kMaxDim);
  latent.rotated_dim = fields.Int("qk_rope_head_dim", 2, kMaxRotated);
  latent.value_dim = fields.Int("v_head_dim", 1, kMaxDim);
  if (latent.rotated_dim % 2 != 0) {
    fields.Refuse("qk_rope_head_dim", "it must be even: RoPE rotates pairs");
  }
  if (!fields.IsNull("q_lora_rank")) {
    latent.query_rank = fields.IntOr("q_lora_rank", kDefaultQueryRank, 1, kMaxQueryRank);
  }
  if (!fields.BoolOr("rope_interleave", true)) fields.Refuse("rope_interleave", "supported: true");
  if (fields.BoolOr("attention_bias", false)) fields.Refuse("attention_bias", "supported: false");
  return latent;
}

std::string LatentDesc::Canonical() const {
  if (rank == 0) return "";
  std::string text = absl::StrFormat(" latent %d plain %d rotated %d value %d", rank, plain_dim,
                                     rotated_dim, value_dim);
  if (query_rank > 0) absl::StrAppendFormat(&text, " queries %d", query_rank);
  return text;
}

}  // namespace baton
