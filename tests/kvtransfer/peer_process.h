// How tests start transfer_peer, the other process of a handoff (transfer_peer.cc).
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "kvtransfer/protocol/transport.h"

namespace baton {

inline std::vector<std::string> SinkCommand(KvTransport transport, int32_t n_pages,
                                            int64_t cell_bytes) {
  return {TRANSFER_PEER, "sink", NameOf(transport), std::to_string(n_pages),
          std::to_string(cell_bytes)};
}

// Hands over with the nth ticket; commits: else the handoff cannot end by itself.
inline std::vector<std::string> SourceCommand(KvTransport transport, int32_t n_pages,
                                              int64_t cell_bytes, const std::string& sink,
                                              uint64_t n, bool commits) {
  std::vector<std::string> words = {TRANSFER_PEER,
                                    "source",
                                    NameOf(transport),
                                    std::to_string(n_pages),
                                    std::to_string(cell_bytes),
                                    sink,
                                    std::to_string(n)};
  if (!commits) words.push_back("uncommitted");
  return words;
}

inline std::vector<int32_t> AllPages(int32_t n_pages) {
  std::vector<int32_t> pages(static_cast<size_t>(n_pages));
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

}  // namespace baton
