// The fields of a config about latent attention (DeepSeek-V2, arXiv 2405.04434, MLA). Part of
// ModelDesc. Plain values.
//
// The keys and values of all heads of a token are linear in one latent vector of `rank` values. The
// KV pool holds only this vector and one key part with RoPE that the heads share. In the absorbed
// form the query is projected to the latent instead: q' = up-projection of the keys, transposed,
// times q. Attention then sees one KV head whose key is [latent, rotated part] and whose value is
// the latent; the up-projection of the values follows afterwards.
#pragma once

#include <string>

namespace baton {

class JsonFields;

inline constexpr float kLatentNormEps = 1e-6f;  // not the config's rms_norm_eps

struct LatentDesc {
  int rank = 0;         // 0: the model has ordinary attention
  int plain_dim = 0;    // width of the part of a head's query and key without RoPE
  int rotated_dim = 0;  // width of the part with RoPE
  int value_dim = 0;    // width of a head's value
  // Width of the latent vector of the queries, normed like the other latent; 0: queries are linear
  // in the layer's input.
  int query_rank = 0;
  int query_dim() const { return plain_dim + rotated_dim; }
  int key_dim() const { return rank + rotated_dim; }  // width of a token's key in the KV pool
  std::string Canonical() const;  // a part of ModelDesc::Canonical; empty without latent attention
};

// Reads DeepSeek's fields. `fields` remembers errors.
LatentDesc ReadLatent(JsonFields& fields);

}  // namespace baton
