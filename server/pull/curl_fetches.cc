#include "server/pull/curl_fetches.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr long kMaxRedirects = 8;
constexpr long kConnectSeconds = 20;
constexpr int kMaxPollMs = 1000;

// Results that another try does not change.
bool MayPass(CURLcode code) {
  static constexpr CURLcode kFinal[] = {
      CURLE_UNSUPPORTED_PROTOCOL,     CURLE_URL_MALFORMAT,      CURLE_TOO_MANY_REDIRECTS,
      CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_OUT_OF_MEMORY,
  };
  return std::find(std::begin(kFinal), std::end(kFinal), code) == std::end(kFinal);
}

std::string HintOf(CURLcode code) {
  if (code == CURLE_PEER_FAILED_VERIFICATION)
    return "give the authority of the hub's certificate with --ca FILE";
  if (code == CURLE_SSL_CACERT_BADFILE) return "give a readable PEM file with --ca FILE";
  if (code == CURLE_UNSUPPORTED_PROTOCOL)
    return "a hub is an https:// address, which leads to no http:// one";
  if (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT)
    return "look at --hub, at the network, and at https_proxy";
  return "look at the network";
}

}  // namespace

struct CurlFetches::Fetch {
  const CurlLibrary* curl = nullptr;
  int64_t id = 0;
  FetchSink* sink = nullptr;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  char failure[CURL_ERROR_SIZE] = {};
  std::string hub_error;
  int64_t from = 0;  // what the answer's Content-Range says
  bool has_begun = false;
  absl::Status status;

  ~Fetch() {
    curl->easy_cleanup(easy);
    curl->slist_free_all(headers);
  }
  long HttpStatus() const {
    long status_code = 0;
    curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status_code);
    return status_code;
  }
  absl::Status Begin() {
    if (has_begun) return absl::OkStatus();
    has_begun = true;
    return sink->Begin(HttpStatus() == 206 ? from : 0);
  }
};

CurlFetches::CurlFetches(const CurlLibrary& curl, FetchOptions options)
    : curl_(curl), options_(std::move(options)), multi_(curl_.multi_init()) {
  BATON_CHECK(multi_ != nullptr);
}

CurlFetches::~CurlFetches() {
  for (const auto& [id, fetch] : running_) curl_.multi_remove_handle(multi_, fetch->easy);
  running_.clear();
  curl_.multi_cleanup(multi_);
}

size_t CurlFetches::OnHeader(char* data, size_t size, size_t n, void* context) {
  Fetch* fetch = static_cast<Fetch*>(context);
  const absl::string_view line(data, size * n);
  if (absl::StartsWith(line, "HTTP/")) {  // of the next answer, behind a redirect
    fetch->hub_error.clear();
    fetch->from = 0;
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return line.size();
  const std::string name = absl::AsciiStrToLower(line.substr(0, colon));
  const std::string value(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  if (name == "x-error-code") fetch->hub_error = value.substr(0, 64);
  if (name == "content-range") {  // bytes 100-199/200
    const size_t from = value.find(' ');
    const size_t dash = value.find('-');
    if (from != std::string::npos && dash != std::string::npos && dash > from &&
        !absl::SimpleAtoi(value.substr(from + 1, dash - from - 1), &fetch->from)) {
      fetch->from = -1;
    }
  }
  return line.size();
}

size_t CurlFetches::OnBody(char* data, size_t size, size_t n, void* context) {
  Fetch* fetch = static_cast<Fetch*>(context);
  const std::string_view bytes(data, size * n);
  const long status = fetch->HttpStatus();
  if (status != 200 && status != 206) return bytes.size();  // the page of an error
  fetch->status = fetch->Begin();
  if (fetch->status.ok()) fetch->status = fetch->sink->Take(bytes);
  return fetch->status.ok() ? bytes.size() : CURL_WRITEFUNC_ERROR;
}

void CurlFetches::Start(int64_t id, const FetchRequest& request, FetchSink* sink) {
  auto fetch = std::make_unique<Fetch>();
  fetch->curl = &curl_;
  fetch->id = id;
  fetch->sink = sink;
  fetch->easy = curl_.easy_init();
  BATON_CHECK(fetch->easy != nullptr);
  const auto set = [&](CURLoption option, auto value) {
    BATON_CHECK(curl_.easy_setopt(fetch->easy, option, value) == CURLE_OK);
  };
  const auto add = [&](const std::string& header) {
    fetch->headers = curl_.slist_append(fetch->headers, header.c_str());
  };
  // libcurl keeps this header from other hosts, ports and schemes behind a redirect.
  if (!request.token.empty()) add(absl::StrCat("Authorization: Bearer ", request.token));
  add("Accept-Encoding: identity");  // digests and ranges are those of the file's own bytes
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_HTTPHEADER, fetch->headers);
  set(CURLOPT_USERAGENT, "baton-pull");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, kMaxRedirects);
  set(CURLOPT_UNRESTRICTED_AUTH, 0L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR,
      absl::StartsWith(request.url, "https://") ? "https" : "http,https");
  // A connection for each: of one connection for all, a lost one would cut every file.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(absl::ToInt64Seconds(options_.silence)));
  set(CURLOPT_ERRORBUFFER, fetch->failure);
  set(CURLOPT_HEADERFUNCTION, &OnHeader);
  set(CURLOPT_HEADERDATA, fetch.get());
  set(CURLOPT_WRITEFUNCTION, &OnBody);
  set(CURLOPT_WRITEDATA, fetch.get());
  set(CURLOPT_PRIVATE, fetch.get());
  set(CURLOPT_BUFFERSIZE, 512L << 10);
  if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
  if (request.from > 0) set(CURLOPT_RANGE, absl::StrCat(request.from, "-").c_str());
  BATON_CHECK(curl_.multi_add_handle(multi_, fetch->easy) == CURLM_OK);
  const bool is_new = running_.emplace(id, std::move(fetch)).second;
  BATON_CHECK(is_new);
}

FetchEnd CurlFetches::Ended(Fetch* fetch, int result) const {
  const auto code = static_cast<CURLcode>(result);
  FetchEnd end;
  end.id = fetch->id;
  end.http_status = static_cast<int>(fetch->HttpStatus());
  end.hub_error = fetch->hub_error;
  const char* url = nullptr;
  curl_.easy_getinfo(fetch->easy, CURLINFO_EFFECTIVE_URL, &url);
  // Behind "?" the addresses of large files carry a signature, which is for no log.
  if (url != nullptr) end.url = std::vector<std::string>(absl::StrSplit(url, '?')).front();
  curl_off_t retry_after = 0;
  curl_.easy_getinfo(fetch->easy, CURLINFO_RETRY_AFTER, &retry_after);
  end.retry_after = absl::Seconds(retry_after);
  end.sink = fetch->status;
  if (!end.sink.ok()) return end;
  if (code != CURLE_OK) {
    end.failure = fetch->failure[0] != '\0' ? fetch->failure : curl_.easy_strerror(code);
    end.hint = HintOf(code);
    end.may_pass = MayPass(code);
  } else if (end.http_status == 200 || end.http_status == 206) {
    end.sink = fetch->Begin();  // of an empty answer
  }
  return end;
}

std::vector<FetchEnd> CurlFetches::Wait(absl::Duration timeout) {
  const int64_t ms = std::clamp<int64_t>(
      absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1))), 0, kMaxPollMs);
  BATON_CHECK(curl_.multi_poll(multi_, nullptr, 0, static_cast<int>(ms), nullptr) == CURLM_OK);
  int n = 0;
  BATON_CHECK(curl_.multi_perform(multi_, &n) == CURLM_OK);
  std::vector<FetchEnd> ended;
  while (const CURLMsg* message = curl_.multi_info_read(multi_, &n)) {
    if (message->msg != CURLMSG_DONE) continue;
    Fetch* fetch = nullptr;
    curl_.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &fetch);
    const CURLcode result = message->data.result;
    curl_.multi_remove_handle(multi_, fetch->easy);  // `message` is gone now
    ended.push_back(Ended(fetch, result));
    running_.erase(fetch->id);
  }
  return ended;
}

}  // namespace baton
