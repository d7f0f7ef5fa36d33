// What a config says about latent attention (DeepSeek-V2, arXiv 2405.04434, MLA). Part of
// ModelDesc.
//
// A token's keys and values of all heads are linear in one latent vector of `rank` values, which is
// all that the KV pool holds, beside one key part with RoPE that the heads share. In the absorbed
// form the query goes to the latent's side instead: q' = up-projection of the keys, transposed,
// times q, so attention sees one KV head whose key is [latent, rotated part] and whose value is the
// latent; the up-projection of the values follows after it.
#pragma once

#include <string>

namespace baton {

class JsonFields;

inline constexpr float kLatentNormEps = 1e-6f;  // whatever the config says of other norms

struct LatentDesc {
  int rank = 0;         // 0: the model has ordinary attention
  int plain_dim = 0;    // of a head's query and key: the part without RoPE
  int rotated_dim = 0;  // and the part with it
  int value_dim = 0;    // of a head's value
  // The queries too are linear in a latent vector, normed like the other one, of so many values; 0:
  // in the layer's input.
  int query_rank = 0;
  int query_dim() const { return plain_dim + rotated_dim; }
  int key_dim() const { return rank + rotated_dim; }  // in the KV pool
  std::string Canonical() const;  // a part of ModelDesc::Canonical; empty without
};

// DeepSeek's fields. Errors are remembered by `fields`.
LatentDesc ReadLatent(JsonFields& fields);

}  // namespace baton
