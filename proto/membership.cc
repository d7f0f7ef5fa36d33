#include "proto/membership.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr size_t kIdHex = 16;                      // 64 bits
constexpr size_t kProofHex = 2 * kIdHex + 2 * 32;  // incarnation, nonce, MAC

// `speaker` prevents replaying one side's proof as the other's.
std::string Proof(const ClusterKey& key, std::string_view speaker, Incarnation incarnation,
                  uint64_t nonce) {
  const std::string ids = absl::StrFormat("%016x%016x", incarnation, nonce);
  const std::string said = absl::StrFormat("baton control v1 %s %s", std::string(speaker), ids);
  const std::array<uint8_t, 32> mac = ClusterMac(key, said.data(), said.size());
  std::string proof = ids;
  for (const uint8_t byte : mac) absl::StrAppendFormat(&proof, "%02x", byte);
  return proof;
}

bool ParseHex(std::string_view text, uint64_t* value) {
  return absl::SimpleHexAtoi(std::string(text), value);
}

}  // namespace

std::string WorkerProof(const ClusterKey& key, Incarnation incarnation, uint64_t nonce) {
  return Proof(key, "worker", incarnation, nonce);
}

std::string RouterProof(const ClusterKey& key, const ProvenWorker& worker) {
  return Proof(key, "router", worker.incarnation, worker.nonce);
}

absl::StatusOr<ProvenWorker> CheckWorkerProof(const ClusterKey& key, std::string_view proof) {
  ProvenWorker worker;
  if (proof.size() != kProofHex || !ParseHex(proof.substr(0, kIdHex), &worker.incarnation) ||
      !ParseHex(proof.substr(kIdHex, kIdHex), &worker.nonce) || worker.incarnation == 0)
    return absl::UnauthenticatedError("the worker's proof of membership is missing or malformed");
  const std::string expected = WorkerProof(key, worker.incarnation, worker.nonce);
  unsigned difference = 0;  // constant time: reveals nothing about the position of the difference
  for (size_t i = 0; i < kProofHex; ++i)
    difference |= static_cast<unsigned char>(proof[i] ^ expected[i]);
  if (difference != 0)
    return absl::UnauthenticatedError(
        "the worker holds another cluster key: start it with the key of this router's cluster");
  return worker;
}

}  // namespace baton
