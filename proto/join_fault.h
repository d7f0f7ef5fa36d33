// Why a peer of the control wire is refused before anything that it tells is taken. Plain values
// and pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>

namespace baton {

enum class JoinFault {
  kNoCertificate,       // TLS without a certificate of its own
  kForeignCertificate,  // signed by nobody whom cluster.tls_ca trusts
  kExpiredCertificate,  // or not valid yet
  kNoRole,              // a certificate without a name of cluster and role
  kOtherCluster,
  kOtherRole,      // than the process takes here, or than the worker announces
  kMissingProof,   // no proof of the cluster key, or malformed
  kOtherKey,       // a proof with another cluster key
  kReplayedProof,  // a proof for a challenge that was used, is too old, or is not of this router
  kOtherUser,      // over a Unix socket, a process of another user
  kOtherVersion,   // announces another version of the wire
};

// Values of a metric's label.
inline constexpr std::array kJoinFaultNames = {
    "no_certificate", "foreign_certificate", "expired_certificate", "no_role",
    "other_cluster",  "other_role",          "missing_proof",       "other_key",
    "replayed_proof", "other_user",          "other_version"};
inline constexpr size_t kJoinFaults = kJoinFaultNames.size();

}  // namespace baton
