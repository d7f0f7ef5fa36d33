// Messages of the control wire as bytes, the form in which gRPC carries them. Any thread.
#pragma once

#include <catch2/catch.hpp>
#include <span>
#include <string>

#include "control.pb.h"
#include "proto/control_codec.h"

namespace baton {

inline wire::WorkerReport Encoded(const WorkerReport& report) {
  wire::WorkerReport out;
  AppendReport(report, &out);
  return out;
}

// All of the messages, which must fit one batch.
inline wire::RouterMessages Encoded(std::span<const RouterMessage> messages) {
  wire::RouterMessages out;
  CHECK(EncodeMessages(messages, &out) == messages.size());
  return out;
}

inline std::string SerializeReport(const WorkerReport& report) {
  return Encoded(report).SerializeAsString();
}

inline std::string SerializeMessages(std::span<const RouterMessage> messages) {
  return Encoded(messages).SerializeAsString();
}

template <typename Wire>
absl::StatusOr<Wire> ParseWire(const std::string& bytes) {
  Wire parsed;
  if (!parsed.ParseFromString(bytes))
    return absl::InvalidArgumentError("control message is not a valid protobuf");
  return parsed;
}

inline absl::StatusOr<WorkerReport> ParseReport(const std::string& bytes) {
  ASSIGN_OR_RETURN(const wire::WorkerReport in, ParseWire<wire::WorkerReport>(bytes));
  return DecodeReport(in);
}

inline absl::StatusOr<DecodedMessages> ParseMessages(const std::string& bytes) {
  ASSIGN_OR_RETURN(const wire::RouterMessages in, ParseWire<wire::RouterMessages>(bytes));
  return DecodeMessages(in);
}

}  // namespace baton
