// HTTP/1.1 messages as plain values, and the one writer of responses. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/trace_context.h"

namespace baton {

struct KeyHolder;  // of server/access

// Tells senders of requests apart. Clients behind one proxy have one address; a key is whatever
// they say.
struct ClientId {
  uint64_t address = 0;  // equal for one address of IPv4, or one /64 of IPv6
  uint64_t key = 0;      // equal for one Authorization and X-Api-Key
  bool operator==(const ClientId&) const = default;
};

// The part of a request that the application sees; the rest of the header ends with parsing.
struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent, without the question mark
  bool is_http_1_0 = false;
  bool keep_alive = true;
  bool expects_continue = false;  // the client waits for 100 Continue before the body
  bool has_body = false;
  std::string content_type, content_encoding, origin, host, request_id, user_agent;
  std::string accept_encoding, if_none_match;
  // The client's secrets, as sent; the handler takes them away when it has seen the header.
  std::string authorization, api_key;
  std::shared_ptr<const KeyHolder> holder;  // set by the handler; null: there are no keys
  uint64_t owner = 0;         // set by the handler: whose connection it is; 0: nobody's
  std::string asked_headers;  // Access-Control-Request-Headers of a preflight
  std::string timeout;        // X-Request-Timeout-Ms, as sent
  TraceContext trace{};       // of the client's traceparent
  ClientId client{};
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";  // empty: no such header
  std::string body;
  // Names are constants of ours; values are checked by the writer.
  std::vector<std::pair<const char*, std::string>> headers;
  bool close = false;  // the connection is not used again
};

// A page in the text format of Prometheus.
HttpReply MetricsReply(std::string page);

std::string_view ReasonPhrase(int status);  // "OK", ...; "Unknown" for a status we never send

// Status line and headers, up to and with the empty line. Bytes of values that could end a line are
// replaced: a response cannot be split.
std::string ReplyHead(const HttpReply& reply, const HttpRequest& request);
// Head of a response whose body comes in pieces: chunked in HTTP/1.1, ended by close in 1.0.
std::string StreamHead(const HttpReply& reply, const HttpRequest& request);
// Frames `bytes` as one piece of such a body and appends it to *out.
void AppendChunk(std::string_view bytes, bool is_http_1_0, std::string* out);
void AppendLastChunk(bool is_http_1_0, std::string* out);

}  // namespace baton
