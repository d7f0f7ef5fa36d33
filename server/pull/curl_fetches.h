// GET requests over HTTP and TLS, several at a time, all in the thread that calls Wait. Redirects
// are followed; a token goes to the host of the first address alone. Proxies are those that libcurl
// finds (https_proxy and the like).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"
#include "server/pull/curl_library.h"

namespace baton {

struct FetchRequest {
  std::string url;
  std::string token;  // empty: none
  int64_t from = 0;   // the first byte that is wanted
};

// Takes the bytes of an answer with status 200 or 206. An error ends the fetch.
class FetchSink {
 public:
  virtual ~FetchSink() = default;
  // Before the first byte: the answer begins at byte `from` of the file, which is 0 where the host
  // does not answer ranges.
  virtual absl::Status Begin(int64_t from) = 0;
  virtual absl::Status Take(std::string_view bytes) = 0;
};

// How a fetch has ended: by its sink, by the connection, or with the status of an answer.
struct FetchEnd {
  int64_t id = 0;
  absl::Status sink;      // an error of the sink's
  std::string failure;    // of the connection or the transfer, in libcurl's words; else empty
  std::string hint;       // failure: what to change
  bool may_pass = false;  // failure: another try may go better
  int http_status = 0;    // of the last answer; 0: there was none
  std::string hub_error;  // its header X-Error-Code, as GatedRepo
  absl::Duration retry_after = absl::ZeroDuration();  // as it asks for; 0: not at all
  std::string url;                                    // that answered, behind redirects

  bool ok() const {
    return sink.ok() && failure.empty() && (http_status == 200 || http_status == 206);
  }
};

struct FetchOptions {
  std::string ca_file;                         // authorities in PEM; empty: the system's
  absl::Duration silence = absl::Seconds(30);  // without a byte; then a fetch fails
};

class CurlFetches {
 public:
  CurlFetches(const CurlLibrary& curl, FetchOptions options);
  ~CurlFetches();
  CurlFetches(const CurlFetches&) = delete;
  CurlFetches& operator=(const CurlFetches&) = delete;

  // id: of no fetch that runs. The sink lives until the fetch has ended.
  void Start(int64_t id, const FetchRequest& request, FetchSink* sink);
  // Moves bytes until something happens, for `timeout` at most; returns what has ended.
  std::vector<FetchEnd> Wait(absl::Duration timeout);

 private:
  struct Fetch;
  static size_t OnHeader(char* data, size_t size, size_t n, void* fetch);
  static size_t OnBody(char* data, size_t size, size_t n, void* fetch);
  FetchEnd Ended(Fetch* fetch, int result) const;

  const CurlLibrary curl_;
  const FetchOptions options_;
  CURLM* const multi_;
  std::map<int64_t, std::unique_ptr<Fetch>> running_;
};

}  // namespace baton
