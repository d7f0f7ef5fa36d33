#include "server/http/http_message.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

void AppendHeader(std::string_view name, std::string_view value, std::string* out) {
  out->append(name).append(": ");
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    out->push_back(byte < 0x20 || byte == 0x7f ? '?' : c);
  }
  out->append("\r\n");
}

std::string CommonHead(const HttpReply& reply, const HttpRequest& request) {
  std::string head =
      absl::StrFormat("HTTP/1.1 %d %s\r\n", reply.status, std::string(ReasonPhrase(reply.status)));
  if (!reply.content_type.empty()) AppendHeader("Content-Type", reply.content_type, &head);
  for (const auto& [name, value] : reply.headers) AppendHeader(name, value, &head);
  if (reply.close || !request.keep_alive) {
    AppendHeader("Connection", "close", &head);
  } else if (request.is_http_1_0) {
    AppendHeader("Connection", "keep-alive", &head);
  }
  return head;
}

}  // namespace

HttpReply MetricsReply(std::string page) {
  HttpReply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = std::move(page);
  return reply;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

std::string ReplyHead(const HttpReply& reply, const HttpRequest& request) {
  std::string head = CommonHead(reply, request);
  if (reply.status != 304)  // that of the page which the client has
    AppendHeader("Content-Length", absl::StrCat(reply.body.size()), &head);
  head.append("\r\n");
  return head;
}

std::string StreamHead(const HttpReply& reply, const HttpRequest& request) {
  std::string head = CommonHead(reply, request);
  if (!request.is_http_1_0) AppendHeader("Transfer-Encoding", "chunked", &head);
  head.append("\r\n");
  return head;
}

void AppendChunk(std::string_view bytes, bool is_http_1_0, std::string* out) {
  if (bytes.empty()) return;
  if (is_http_1_0) {
    out->append(bytes);
    return;
  }
  absl::StrAppend(out, absl::Hex(bytes.size()), "\r\n");
  out->append(bytes).append("\r\n");
}

void AppendLastChunk(bool is_http_1_0, std::string* out) {
  if (!is_http_1_0) out->append("0\r\n\r\n");
}

}  // namespace baton
