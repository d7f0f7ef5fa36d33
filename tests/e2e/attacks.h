// Attacks are what misbehaving clients do to a server: each attack is a thread or a few that hold
// many connections of one address, until they are told that it is over.
#pragma once

#include <atomic>
#include <span>
#include <string_view>
#include <vector>

namespace baton {

struct AttackTarget {
  int port = 0;                     // of the API
  std::vector<int> worker_ports{};  // of workers' own pages
  int scale = 1;                    // the sizes of an attack are divided by it
};

struct Attack {
  std::string_view name, what;
  void (*run)(const AttackTarget& target, const std::atomic<bool>& over);
};

std::span<const Attack> AllAttacks();

}  // namespace baton
