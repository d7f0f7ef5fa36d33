// Names of pages as a worker would give them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/page_name.h"

namespace baton {

// Names of the whole pages of these tokens, in order.
inline std::vector<PageName> PageNames(const ClusterKey& key, std::span<const int32_t> tokens,
                                       int32_t page_tokens, uint64_t salt = 0,
                                       bool is_long = false) {
  const PageNamer namer(key);
  std::vector<PageName> names;
  PageName name = PageName::Beginning(salt, is_long);
  for (const auto page = static_cast<size_t>(page_tokens); tokens.size() >= page;
       tokens = tokens.subspan(page)) {
    name = namer.After(name, tokens.first(page));
    names.push_back(name);
  }
  return names;
}

}  // namespace baton
