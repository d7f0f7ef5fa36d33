// The rooms of the tree and what each may include (docs/ARCHITECTURE.md, rooms and floors).
#pragma once

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace baton {

inline const std::string kRoot = BATON_SOURCE_DIR;

// The rooms that each room may include besides itself. bench may include all that it measures.
inline const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"common", {}},
    {"proto", {"common"}},
    {"text", {"common"}},
    {"engine", {"common"}},
    {"kvtransfer", {"common"}},
    {"planner", {"common"}},
    {"router", {"common", "proto", "planner"}},
    {"prefill_worker", {"common", "proto", "engine", "kvtransfer", "planner"}},
    {"decode_worker", {"common", "proto", "engine", "kvtransfer"}},
    {"worker",
     {"common", "proto", "engine", "kvtransfer", "planner", "prefill_worker", "decode_worker"}},
    {"lab", {"common", "engine", "kvtransfer", "planner", "worker"}},
    {"bench",
     {"common", "proto", "text", "engine", "kvtransfer", "planner", "prefill_worker",
      "decode_worker", "worker", "lab"}},
    {"server",
     {"common", "proto", "text", "engine", "kvtransfer", "planner", "router", "prefill_worker",
      "decode_worker", "worker", "lab", "bench"}},
};

// Returns the rooms of the product: all except bench. The product offers lab's parts as lab.*.
inline std::vector<std::string> ProductRooms() {
  std::vector<std::string> rooms;
  for (const auto& [room, floor] : kMayInclude)
    if (room != "bench") rooms.push_back(room);
  return rooms;
}

inline std::vector<std::string> With(std::vector<std::string> rooms,
                                     const std::vector<std::string>& more) {
  rooms.insert(rooms.end(), more.begin(), more.end());
  return rooms;
}

// Joins complaints, one per line, so that one run shows all of them.
inline std::string Joined(const std::vector<std::string>& complaints) {
  std::ostringstream out;
  for (const std::string& complaint : complaints) out << "\n  " << complaint;
  return out.str();
}

}  // namespace baton
