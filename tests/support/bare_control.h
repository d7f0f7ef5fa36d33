// A control stream made by hand, for what ControlClient never does: proofs that were recorded,
// bytes that are no message.
#pragma once

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "control.grpc.pb.h"
#include "proto/membership.h"

namespace baton {

// Asks a router for a challenge. 0: it gave none.
inline uint64_t AskChallenge(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  const auto stream = wire::Control::NewStub(channel)->Attach(&context);
  const grpc::Status status = stream->Finish();
  CHECK(status.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto given = metadata.find(kChallengeKey);
  return given == metadata.end() ? 0 : ParseChallenge({given->second.data(), given->second.size()});
}

// Returns a proof for a new challenge.
inline std::string FreshProof(const std::shared_ptr<grpc::Channel>& channel, const ClusterKey& key,
                              Incarnation incarnation, uint64_t nonce = 1) {
  const uint64_t challenge = AskChallenge(channel);
  CHECK(challenge != 0);
  return WorkerProof(key, {.incarnation = incarnation, .nonce = nonce, .challenge = challenge});
}

}  // namespace baton
