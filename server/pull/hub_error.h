// Errors of a hub as who runs `baton pull` needs them, and which fetches are tried again. Pure, any
// thread.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/status.h"
#include "server/pull/curl_fetches.h"
#include "server/pull/hub_id.h"

namespace baton {

struct HubQuestion {
  std::string hub;  // https://HOST, without a slash at its end
  HubId model;
  std::string file;  // empty: the list of files
  bool has_token = false;
};

// The error of a fetch that has failed for good; it says what to change.
absl::Status HubError(const FetchEnd& end, const HubQuestion& question);
// "403 of https://host/path", or what libcurl says.
std::string FailureText(const FetchEnd& end);

// When a failed fetch is tried again: after 1, 2, 4, ... seconds or when the hub says; four times
// without a new byte at most.
class FetchRetry {
 public:
  // has_new: bytes came since the last try. Null: the error is final.
  std::optional<absl::Duration> WaitAfter(const FetchEnd& end, bool has_new);

 private:
  int tries_ = 0;
};

}  // namespace baton
