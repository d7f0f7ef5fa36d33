// Which items of a layer each member of the pool reads. The order changes no bit.
//
//   claims of two members, seven items    0 1 2 3 4 5 6
//   kInTurn                               0 1 2 3 4 5 6
//   kInParts                              0 3 1 4 2 5 6
#pragma once

#include <cstdint>

namespace baton {

// The pool hands out claims in ascending order, to members that claim about equally often. (Zen 4,
// 2 threads, weights from memory, both orders alternated, kInParts against kInTurn: int8 and int4
// of one and two rows 1.04 to 1.07 times as fast, of 512 rows 1.05; bf16 and other rows 1.00
// to 1.04. No other machine is measured.)
enum class ItemOrder {
  kInTurn,   // adjacent items go to different members
  kInParts,  // each member goes through a part of its own: one stream from memory per member
};

// The item of a claim; every one of `items` items has one claim in [0, items).
constexpr int64_t ItemOfClaim(ItemOrder order, int64_t claim, int64_t items, int64_t members) {
  const int64_t each = items / members;
  if (order == ItemOrder::kInTurn || claim >= each * members) return claim;
  return claim % members * each + claim / members;
}

// From an item to the one that its member most likely reads next.
constexpr int64_t ItemStep(ItemOrder order, int64_t members) {
  return order == ItemOrder::kInTurn ? members : 1;
}

}  // namespace baton
