// Proof, in the first metadata of a control stream, that both ends hold the same cluster key. The
// worker sends its incarnation, a fresh nonce and a MAC over both; the router answers with a MAC
// over the same nonce. The proof stops strangers and mistakes on a loopback or TLS wire; against an
// attacker who can read the wire it needs TLS. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/status.h"
#include "common/ticket.h"

namespace baton {

// Metadata keys of the control stream.
inline constexpr char kWorkerProofKey[] = "baton-worker-proof";
inline constexpr char kRouterProofKey[] = "baton-router-proof";

// Text for kWorkerProofKey: incarnation, nonce and MAC in hexadecimal.
std::string WorkerProof(const ClusterKey& key, Incarnation incarnation, uint64_t nonce);

struct ProvenWorker {
  Incarnation incarnation = 0;
  uint64_t nonce = 0;
};
// Returns the worker that a WorkerProof names. Unauthenticated: malformed, or made with another
// key.
absl::StatusOr<ProvenWorker> CheckWorkerProof(const ClusterKey& key, std::string_view proof);

// Text for kRouterProofKey.
std::string RouterProof(const ClusterKey& key, const ProvenWorker& worker);

}  // namespace baton
