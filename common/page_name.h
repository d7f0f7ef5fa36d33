// Names of KV pages that router and workers agree on: a keyed hash of a page's tokens and of all
// before them. Whoever does not have the cluster's key cannot look for two pages of one name.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "common/ticket.h"

struct evp_mac_ctx_st;  // OpenSSL's

namespace baton {

struct PageName {
  // The name before a sequence's first page. Sequences of different salts, or of RoPE's two ranges,
  // have no page in common.
  static PageName Beginning(uint64_t salt, bool is_long) { return {.high = salt, .low = is_long}; }

  uint64_t high = 0, low = 0;
  auto operator<=>(const PageName&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const PageName& name) {
    return H::combine(std::move(h), name.low);  // all its bits are random
  }
};

// Makes names: SipHash-2-4 of 128 bits. Used by one thread.
class PageNamer {
 public:
  explicit PageNamer(const ClusterKey& key);

  // Name of the page that has these tokens and follows the page `before`.
  PageName After(const PageName& before, std::span<const int32_t> tokens) const;

 private:
  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  std::array<uint8_t, 16> key_{};
  const std::unique_ptr<evp_mac_ctx_st, Free> context_;
};

}  // namespace baton
