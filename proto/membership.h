// Proof, in the metadata of a control stream, that both ends hold the same cluster key, over fresh
// numbers of both: what was recorded of one stream opens no other one.
//
//   worker -> router  Attach without a proof
//   router -> worker  refused, with a challenge: a random number that is good once; and its id
//   worker -> router  Attach with its incarnation, its own nonce, the challenge, MAC over all three
//   router -> worker  a MAC of its own over the three
//
// Over a wire that others can change it needs TLS, which keeps them from sitting in between.
// Pure functions, any thread; Challenges: one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/router_id.h"
#include "common/status.h"
#include "common/ticket.h"
#include "proto/join_fault.h"

namespace baton {

// Metadata keys of the control stream.
// Trailing, of the refused call: the challenge, and the router's id.
inline constexpr char kChallengeKey[] = "baton-challenge";
inline constexpr char kRouterIdKey[] = "baton-router";
inline constexpr char kWorkerProofKey[] = "baton-worker-proof";
inline constexpr char kRouterProofKey[] = "baton-router-proof";

struct ProvenWorker {
  Incarnation incarnation = 0;
  uint64_t nonce = 0;      // the worker's
  uint64_t challenge = 0;  // the router's
};

// Text for kChallengeKey, and back. 0: malformed.
std::string ChallengeText(uint64_t challenge);
uint64_t ParseChallenge(std::string_view text);
// Text for kRouterIdKey, and back. Nothing: malformed.
std::string RouterIdText(RouterId router);
std::optional<RouterId> ParseRouterId(std::string_view text);

// Text for kWorkerProofKey: incarnation, nonce, challenge and MAC in hexadecimal.
std::string WorkerProof(const ClusterKey& key, const ProvenWorker& worker);
// Returns the worker that a WorkerProof names; its challenge is still to be checked.
// Unauthenticated: malformed, or made with another key; *fault says which.
absl::StatusOr<ProvenWorker> CheckWorkerProof(const ClusterKey& key, std::string_view proof,
                                              JoinFault* fault);

// Text for kRouterProofKey.
std::string RouterProof(const ClusterKey& key, const ProvenWorker& worker);

// The challenges that a router gave out and nobody has answered yet.
class Challenges {
 public:
  static constexpr size_t kMaxOpen = 1024;  // one more: the oldest is forgotten
  static constexpr absl::Duration kLife = absl::Seconds(10);

  uint64_t Give(absl::Time now);  // never 0
  // True: it was given less than kLife ago, and is answered for the first time.
  bool Take(uint64_t challenge, absl::Time now);

 private:
  std::deque<std::pair<uint64_t, absl::Time>> open_;  // the oldest first
};

}  // namespace baton
