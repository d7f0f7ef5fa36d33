// The control wire, both ways: bytes of a router or a worker that nobody vouches for are refused by
// message and field, cost one request, or mean the same when sent again.
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "control.pb.h"
#include "proto/control_codec.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/proto/every_message.h"

namespace baton {
namespace {

enum Direction { kToRouter, kToWorker, kDirections };

void CheckRefusal(const absl::Status& status) {
  BATON_CHECK(absl::IsInvalidArgument(status));
  BATON_CHECK(!status.message().empty() && status.message().size() < 4000);
}

void TryReport(const std::string& bytes) {
  wire::WorkerReport in;
  if (!in.ParseFromString(bytes)) return;
  const auto report = DecodeReport(in);
  if (!report.ok()) return CheckRefusal(report.status());
  BATON_CHECK(report->events.size() <= ControlLimits::kEventsPerReport);
  wire::WorkerReport once, twice;
  AppendReport(*report, &once);
  const auto again = DecodeReport(once);
  BATON_CHECK(again.ok());
  AppendReport(*again, &twice);
  BATON_CHECK(once.SerializeAsString() == twice.SerializeAsString());
}

void TryMessages(const std::string& bytes) {
  wire::RouterMessages in;
  if (!in.ParseFromString(bytes)) return;
  const auto decoded = DecodeMessages(in);
  if (!decoded.ok()) return CheckRefusal(decoded.status());
  const std::vector<RouterMessage>& messages = decoded->messages;
  BATON_CHECK(messages.size() + decoded->unreadable.size() ==
              static_cast<size_t>(in.messages_size()));
  for (const PartEnded& part : decoded->unreadable) {
    BATON_CHECK(part.reason == EndReason::kFailed && part.fault == PartFault::kUnreadable);
    WorkerReport report;  // goes back to the router
    report.events.emplace_back(part);
    wire::WorkerReport out;
    AppendReport(report, &out);
    BATON_CHECK(DecodeReport(out).ok());
  }
  if (messages.empty()) return;
  wire::RouterMessages once, twice;
  const size_t n_encoded = EncodeMessages(messages, &once);
  BATON_CHECK(n_encoded > 0 && n_encoded <= messages.size());
  const auto again = DecodeMessages(once);
  BATON_CHECK(again.ok() && again->unreadable.empty() && again->messages.size() == n_encoded);
  BATON_CHECK(EncodeMessages(again->messages, &twice) == n_encoded);
  BATON_CHECK(once.SerializeAsString() == twice.SerializeAsString());
}

}  // namespace

void TryInput(std::string_view bytes) {
  FuzzInput input(bytes);
  const size_t direction = input.Below(kDirections);
  const std::string message(input.Rest());
  if (direction == kToRouter) TryReport(message);
  if (direction == kToWorker) TryMessages(message);
}

FuzzSeeds MakeSeeds() {
  FuzzSeeds seeds;
  const auto add = [&](Direction direction, const google::protobuf::MessageLite& message) {
    seeds.inputs.push_back(static_cast<char>(direction) + message.SerializeAsString());
  };
  wire::WorkerReport all;
  AppendReport(EveryEvent(), &all);
  add(kToRouter, all);
  for (const WorkerEvent& event : EveryEvent().events) {
    WorkerReport report;
    report.events.push_back(event);
    wire::WorkerReport out;
    AppendReport(report, &out);
    add(kToRouter, out);
  }
  const std::vector<RouterMessage> messages = EveryMessage();
  for (size_t begin = 0; begin < messages.size(); ++begin) {
    for (const size_t n : {size_t{1}, messages.size() - begin}) {
      wire::RouterMessages out;
      EncodeMessages(std::span(messages).subspan(begin, n), &out);
      add(kToWorker, out);
    }
  }
  for (const char* word : {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff\xff\xff\xff\x0f",
                           "\x80\x80\x80\x80\x08", "127.0.0.1:7", "cpu-x86"})
    seeds.words.emplace_back(word);
  return seeds;
}

}  // namespace baton
