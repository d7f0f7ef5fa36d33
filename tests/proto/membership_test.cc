#include "proto/membership.h"

#include <catch2/catch.hpp>
#include <vector>

namespace baton {
namespace {

const ProvenWorker kWorker{.incarnation = 0xABCD, .nonce = 42, .challenge = ~0ull};

}  // namespace

TEST_CASE("a proof under the cluster key is accepted and says who it is") {
  const ClusterKey key{1, 2, 3};
  JoinFault fault{};
  const auto proven = CheckWorkerProof(key, WorkerProof(key, kWorker), &fault);
  REQUIRE(proven.ok());
  CHECK(proven->incarnation == 0xABCD);
  CHECK(proven->nonce == 42);
  CHECK(proven->challenge == ~0ull);
}

TEST_CASE("another key, any changed character and any other length are refused") {
  const ClusterKey key{1, 2, 3}, other{1, 2, 4};
  const std::string proof = WorkerProof(key, kWorker);
  JoinFault fault{};
  CHECK(CheckWorkerProof(other, proof, &fault).status().code() ==
        absl::StatusCode::kUnauthenticated);
  CHECK(fault == JoinFault::kOtherKey);
  for (size_t i = 0; i < proof.size(); ++i) {
    std::string changed = proof;
    changed[i] = changed[i] == '0' ? '1' : '0';
    CHECK_FALSE(CheckWorkerProof(key, changed, &fault).ok());
    CHECK_FALSE(CheckWorkerProof(key, proof.substr(0, i), &fault).ok());
    CHECK(fault == JoinFault::kMissingProof);
  }
  CHECK_FALSE(CheckWorkerProof(key, proof + "0", &fault).ok());
  CHECK_FALSE(CheckWorkerProof(key, WorkerProof(key, {.incarnation = 0}), &fault).ok());  // none
}

TEST_CASE("the router's answer is bound to the numbers of both and is not the worker's proof") {
  const ClusterKey key{1, 2, 3};
  ProvenWorker other_nonce = kWorker, other_challenge = kWorker;
  ++other_nonce.nonce;
  --other_challenge.challenge;
  CHECK(RouterProof(key, kWorker) != RouterProof(key, other_nonce));
  CHECK(RouterProof(key, kWorker) != RouterProof(key, other_challenge));
  CHECK(RouterProof(key, kWorker) != WorkerProof(key, kWorker));
  JoinFault fault{};
  CHECK_FALSE(CheckWorkerProof(key, RouterProof(key, kWorker), &fault).ok());
}

TEST_CASE("a challenge travels as text") {
  CHECK(ParseChallenge(ChallengeText(7)) == 7);
  CHECK(ParseChallenge(ChallengeText(~0ull)) == ~0ull);
  for (const char* wrong : {"", "7", "000000000000000g", "00000000000000070"})
    CHECK(ParseChallenge(wrong) == 0);
}

TEST_CASE("a challenge is good once, for a while, and for what was given") {
  Challenges challenges;
  const absl::Time now = absl::UnixEpoch();
  const uint64_t first = challenges.Give(now), second = challenges.Give(now);
  CHECK(first != second);
  CHECK_FALSE(challenges.Take(first ^ second, now));
  CHECK(challenges.Take(second, now));
  CHECK_FALSE(challenges.Take(second, now));
  CHECK(challenges.Take(first, now + Challenges::kLife));
  const uint64_t late = challenges.Give(now);
  CHECK_FALSE(challenges.Take(late, now + Challenges::kLife + absl::Nanoseconds(1)));
}

TEST_CASE("so many challenges are open; the oldest is forgotten for one more") {
  Challenges challenges;
  const absl::Time now = absl::UnixEpoch();
  std::vector<uint64_t> given;
  for (size_t i = 0; i <= Challenges::kMaxOpen; ++i) given.push_back(challenges.Give(now));
  CHECK_FALSE(challenges.Take(given[0], now));
  for (size_t i = 1; i < given.size(); ++i) REQUIRE(challenges.Take(given[i], now));
}

}  // namespace baton
