// A small blocking HTTP/1.1 client for benchmarks and end-to-end tests: one request per
// connection, JSON bodies, server-sent events read line by line with their time of arrival.
// Loopback and plain text only; not a general client.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/status.h"

namespace baton {

struct HttpUrl {
  std::string host;
  int port = 80;
  static absl::StatusOr<HttpUrl> Parse(const std::string& url);  // http://HOST[:PORT]
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // empty for event streams
};

// Called for each `data:` line of an event stream with the time its bytes were read; false stops
// reading and closes the connection (a client that goes away).
using OnSseData = std::function<bool(std::string_view data, absl::Time received)>;

// A client's patience. An exchange beyond a limit fails with Unavailable and its connection is
// closed, which is also how a client goes away at a chosen time.
struct ClientLimits {
  absl::Duration silence = absl::Seconds(120);      // without a byte
  absl::Duration total = absl::InfiniteDuration();  // from connecting to the last byte
  int receive_buffer = 0;  // bytes the kernel holds for a client that reads slowly; 0 = its choice
};

class HttpClient {
 public:
  explicit HttpClient(HttpUrl url, absl::Duration silence = absl::Seconds(120))
      : url_(std::move(url)) {
    limits_.silence = silence;
  }
  HttpClient(HttpUrl url, const ClientLimits& limits) : url_(std::move(url)), limits_(limits) {}

  absl::StatusOr<HttpResponse> Get(const std::string& path,
                                   const std::map<std::string, std::string>& headers = {}) const;
  // A response of type text/event-stream goes to on_data line by line; any other into body.
  absl::StatusOr<HttpResponse> Post(const std::string& path, const std::string& json,
                                    const OnSseData& on_data = nullptr,
                                    const std::map<std::string, std::string>& headers = {}) const;
  // Sends the bytes as they are and returns all bytes until the server closes (abuse tests).
  absl::StatusOr<std::string> Raw(std::string_view bytes) const;

 private:
  absl::StatusOr<HttpResponse> Exchange(const std::string& request, const OnSseData& on_data) const;
  absl::StatusOr<int> Connect() const;
  HttpUrl url_;
  ClientLimits limits_;
};

}  // namespace baton
