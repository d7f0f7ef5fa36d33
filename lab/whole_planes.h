// Gives cells of relay hops to the transfer room a plane at a time, when all of the plane are
// final, as KV-Runahead passes KV on (lab.forwarding: accumulated). All else goes as it comes. For
// comparisons only.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/transfer_filter.h"

namespace baton {

class WholePlanes final : public TransferFilter {
 public:
  void OnCommand(TransferCommand command, const Post& post) override;
  void OnEvent(const TransferEvent& event) override;
  // True if no hop is open.
  bool idle() const;

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // of a ticket id
  struct Plane {
    std::vector<int32_t> pages{};  // all of the hop; those whose cells are not final are not set
    size_t n_final = 0;
    uint64_t after = 0;  // the engine has written all of these then
  };
  struct Hop {
    int32_t first_page = 0, n_pages = 0;
    std::map<int32_t, Plane> planes{};  // begun, not complete
  };
  void Follow(const TransferCommand& command);
  bool Hold(const SendCells& cells, std::vector<SendCells>* complete);

  mutable std::mutex mutex_;
  std::map<Key, Hop> hops_;  // opened, and neither committed nor ended
};

}  // namespace baton
