// Where the bytes of a KV page lie. Only the engine computes addresses of keys and values; the
// transfer room sees planes (here: one per layer) as (offset, bytes) inside a page.
//
// Arena: [page][layer][K|V][kv_head][page_tokens][head_dim], the inner [page_tokens][head_dim]
// block permuted in groups of 16 tokens (tag cpu16, numerics v1):
//   K group: [head_dim_padded / 2][16 tokens][2]     V group: [16 / 2 token pairs][head_dim][2]
// so that the same bytes serve AVX2, AVX-512 and AMX, whatever page_tokens is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace baton {

struct ModelDesc;

enum class KvType { kBf16, kFp32 };  // kFp32 belongs to the plain fp32 mode

struct KvPlane {
  int64_t offset;  // bytes from the start of the page
  int64_t bytes;
};

// Where one layer's planes lie, by page id.
struct KvPlaneTable {
  std::byte* base = nullptr;
  int64_t stride = 0;  // bytes from one page's plane to the next page's
  std::byte* At(int32_t page) const { return base + stride * page; }
};

struct KvLayout {
  KvType type = KvType::kBf16;
  int page_tokens = 64;  // 16, 32 or 64
  int n_layers = 0;
  int n_kv_heads = 0;
  int head_dim = 0;             // D
  int head_dim_padded = 0;      // D rounded up to 32: K stores the zeros too
  int64_t page_bytes = 0;       // all layers, rounded up to 64
  std::vector<KvPlane> planes;  // (n_layers)

  static KvLayout For(const ModelDesc& model, KvType type, int page_tokens);

  int element_bytes() const { return type == KvType::kBf16 ? 2 : 4; }
  // Offset inside a plane of one head's K (or V) block.
  int64_t KOffset(int layer, int kv_head) const;
  int64_t VOffset(int layer, int kv_head) const;
  int64_t KHeadBytes() const;  // page_tokens * head_dim_padded * element
  int64_t VHeadBytes() const;  // page_tokens * head_dim * element
  int PagesFor(int n_tokens) const { return (n_tokens + page_tokens - 1) / page_tokens; }
  // Names order, page size, element type and inner tag: two workers exchange KV only if equal.
  std::string layout_id() const;
};

}  // namespace baton
