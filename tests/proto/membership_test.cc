#include "proto/membership.h"

#include <catch2/catch.hpp>

namespace baton {

TEST_CASE("a proof under the cluster key is accepted and says who it is") {
  const ClusterKey key{1, 2, 3};
  const auto proven = CheckWorkerProof(key, WorkerProof(key, 0xABCD, 42));
  REQUIRE(proven.ok());
  CHECK(proven->incarnation == 0xABCD);
  CHECK(proven->nonce == 42);
}

TEST_CASE("another key, any changed character and any other length are refused") {
  const ClusterKey key{1, 2, 3}, other{1, 2, 4};
  const std::string proof = WorkerProof(key, 5, 6);
  CHECK(CheckWorkerProof(other, proof).status().code() == absl::StatusCode::kUnauthenticated);
  for (size_t i = 0; i < proof.size(); ++i) {
    std::string changed = proof;
    changed[i] = changed[i] == '0' ? '1' : '0';
    CHECK_FALSE(CheckWorkerProof(key, changed).ok());
    CHECK_FALSE(CheckWorkerProof(key, proof.substr(0, i)).ok());
  }
  CHECK_FALSE(CheckWorkerProof(key, proof + "0").ok());
  CHECK_FALSE(CheckWorkerProof(key, WorkerProof(key, 0, 6)).ok());  // 0: no worker
}

TEST_CASE("the router's answer is bound to the nonce and is not the worker's proof") {
  const ClusterKey key{1, 2, 3};
  CHECK(RouterProof(key, {.incarnation = 5, .nonce = 6}) !=
        RouterProof(key, {.incarnation = 5, .nonce = 7}));
  CHECK(RouterProof(key, {.incarnation = 5, .nonce = 6}) != WorkerProof(key, 5, 6));
  CHECK_FALSE(CheckWorkerProof(key, RouterProof(key, {.incarnation = 5, .nonce = 6})).ok());
}

}  // namespace baton
