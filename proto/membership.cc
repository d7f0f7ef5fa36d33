#include "proto/membership.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr size_t kNumberHex = 16;                      // 64 bits
constexpr size_t kProofHex = 3 * kNumberHex + 2 * 32;  // incarnation, nonce, challenge, MAC

// `speaker` keeps one side's proof from serving as the other's.
std::string Proof(const ClusterKey& key, std::string_view speaker, const ProvenWorker& worker) {
  const std::string numbers =
      absl::StrFormat("%016x%016x%016x", worker.incarnation, worker.nonce, worker.challenge);
  const std::string said = absl::StrFormat("baton control v2 %s %s", speaker, numbers);
  const std::array<uint8_t, 32> mac = ClusterMac(key, said.data(), said.size());
  std::string proof = numbers;
  for (const uint8_t byte : mac) absl::StrAppendFormat(&proof, "%02x", byte);
  return proof;
}

bool ParseHex(std::string_view text, uint64_t* value) {
  return absl::SimpleHexAtoi(std::string(text), value);
}

}  // namespace

std::string ChallengeText(uint64_t challenge) { return absl::StrFormat("%016x", challenge); }

uint64_t ParseChallenge(std::string_view text) {
  uint64_t challenge = 0;
  return text.size() == kNumberHex && ParseHex(text, &challenge) ? challenge : 0;
}

std::string RouterIdText(RouterId router) { return absl::StrFormat("%08x", router); }

std::optional<RouterId> ParseRouterId(std::string_view text) {
  uint64_t router = 0;
  if (text.size() != kNumberHex / 2 || !ParseHex(text, &router)) return std::nullopt;
  return static_cast<RouterId>(router);
}

std::string WorkerProof(const ClusterKey& key, const ProvenWorker& worker) {
  return Proof(key, "worker", worker);
}

std::string RouterProof(const ClusterKey& key, const ProvenWorker& worker) {
  return Proof(key, "router", worker);
}

absl::StatusOr<ProvenWorker> CheckWorkerProof(const ClusterKey& key, std::string_view proof,
                                              JoinFault* fault) {
  ProvenWorker worker;
  if (proof.size() != kProofHex || !ParseHex(proof.substr(0, kNumberHex), &worker.incarnation) ||
      !ParseHex(proof.substr(kNumberHex, kNumberHex), &worker.nonce) ||
      !ParseHex(proof.substr(2 * kNumberHex, kNumberHex), &worker.challenge) ||
      worker.incarnation == 0) {
    *fault = JoinFault::kMissingProof;
    return absl::UnauthenticatedError(
        "the worker's proof of membership is missing or malformed: run the same version of baton "
        "everywhere");
  }
  const std::string expected = WorkerProof(key, worker);
  unsigned difference = 0;  // constant time: reveals nothing about the position of the difference
  for (size_t i = 0; i < kProofHex; ++i)
    difference |= static_cast<unsigned char>(proof[i] ^ expected[i]);
  if (difference != 0) {
    *fault = JoinFault::kOtherKey;
    return absl::UnauthenticatedError(
        "the worker holds another cluster key: start it with the key of this router's cluster");
  }
  return worker;
}

uint64_t Challenges::Give(absl::Time now) {
  if (open_.size() >= kMaxOpen) open_.pop_front();
  open_.emplace_back(RandomId(), now);
  return open_.back().first;
}

bool Challenges::Take(uint64_t challenge, absl::Time now) {
  while (!open_.empty() && open_.front().second + kLife < now) open_.pop_front();
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const auto& open) { return open.first == challenge; });
  if (found == open_.end()) return false;
  open_.erase(found);
  return true;
}

}  // namespace baton
