// Requests to every endpoint that generates or works on text, drawn from a seed: bodies by the
// table of fields (tests/server/api/field_samples.h), then changed as broken clients and attackers
// would.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/api/field_samples.h"

namespace baton {

class RequestMutator {
 public:
  explicit RequestMutator(uint64_t seed) : random_(seed) {}

  // Returns the bytes of a request after whose answer the server closes.
  std::string Next() {
    const field_samples::Place& place =
        field_samples::kPlaces[random_() % std::size(field_samples::kPlaces)];
    std::string body = MakeBody(place);
    if (Percent(50)) Change(&body);
    std::string target = PathOf(place.endpoint);
    std::string method = "POST";
    std::string headers = "Host: localhost\r\nContent-Type: application/json\r\n";
    if (Percent(10)) Change(&target);
    if (Percent(5))
      method = Pick({"GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "post", "Z"});
    if (Percent(15)) absl::StrAppend(&headers, OddHeader(), "\r\n");
    std::string request =
        absl::StrCat(method, " ", target, " HTTP/1.1\r\n", headers, "Connection: close\r\n");
    if (Percent(10)) {
      absl::StrAppend(&request, "Transfer-Encoding: chunked\r\n\r\n", Chunks(body));
    } else {
      const size_t length = Percent(4) ? random_() % (2 * body.size() + 2) : body.size();
      absl::StrAppend(&request, "Content-Length: ", length, "\r\n\r\n", body);
    }
    if (Percent(5)) Change(&request);
    return request;
  }

 private:
  bool Percent(uint64_t share) { return random_() % 100 < share; }
  std::string Pick(const std::vector<std::string>& of) { return of[random_() % of.size()]; }

  static std::string PathOf(Endpoint endpoint) {
    switch (endpoint) {
      case Endpoint::kCompletions:
        return "/v1/completions";
      case Endpoint::kChat:
        return "/v1/chat/completions";
      case Endpoint::kTokenize:
        return "/tokenize";
      case Endpoint::kDetokenize:
        return "/detokenize";
      case Endpoint::kApplyTemplate:
        return "/apply-template";
      case Endpoint::kMessages:
        return "/v1/messages";
      case Endpoint::kCountTokens:
        return "/v1/messages/count_tokens";
      case Endpoint::kResponses:
        return "/v1/responses";
      default:
        return "/v1/chat/completions/chatcmpl-0";
    }
  }

  // A body with up to three fields of the endpoint, each with one of its samples.
  std::string MakeBody(const field_samples::Place& place) {
    std::vector<const Field*> fields;
    for (const Field& field : AllFields())
      if ((field.endpoints & SetOf(place.endpoint)) != 0) fields.push_back(&field);
    std::string body = field_samples::Body(place, "max_tokens", "4");
    for (uint64_t n = random_() % 4; n > 0; --n) {
      const Field& field = *fields[random_() % fields.size()];
      field_samples::Samples samples;
      std::visit(samples, field.rule);
      std::vector<std::string>& from =
          Percent(90) && !samples.good.empty() ? samples.good : samples.bad;
      if (from.empty()) continue;
      body.pop_back();
      absl::StrAppend(&body, ",\"", field.name, "\":", from[random_() % from.size()], "}");
    }
    return body;
  }

  void Change(std::string* text) {
    static const std::vector<std::string> kPieces = {"\"",
                                                     "\\",
                                                     "{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     ",",
                                                     ":",
                                                     "null",
                                                     "true",
                                                     "-1",
                                                     "1e999",
                                                     "0.5",
                                                     "99999999999999999999",
                                                     "\\u0000",
                                                     "\\ud800",
                                                     std::string(1, '\0'),
                                                     "\xff",
                                                     "\xc3",
                                                     "\r\n",
                                                     "\r\n\r\n",
                                                     "%00",
                                                     "%ff",
                                                     "/../",
                                                     "<|im_end|>",
                                                     "<|im_start|>system\n",
                                                     "\"$ref\":\"#\"",
                                                     "\"stream\":true,",
                                                     "\"n\":8,",
                                                     "\"logprobs\":true,"};
    for (uint64_t n = 1 + random_() % 3; n > 0; --n) {
      const size_t at = text->empty() ? 0 : random_() % text->size();
      const size_t size = std::min<size_t>(text->size() - at, random_() % 30);
      switch (random_() % 7) {
        case 0:
          if (!text->empty()) (*text)[at] = static_cast<char>(random_());
          break;
        case 1:
          text->erase(at, size);
          break;
        case 2:
          text->insert(at, text->substr(at, size));
          break;
        case 3:
          text->resize(at);
          break;
        case 4:
          text->insert(at, std::string(1 + random_() % 2000, Pick({"[", "{\"a\":", "9", " "})[0]));
          break;
        default:
          text->insert(at, Pick(kPieces));
      }
    }
  }

  std::string OddHeader() {
    std::string header =
        Pick({"Content-Type: text/plain", "Content-Encoding: gzip", "Expect: 100-continue",
              "Transfer-Encoding: gzip", "Host: b", "Content-Length: 1", "Content-Length: -1",
              "X-Request-Id: \x01", "X-Request-Id: mine", "Origin: http://a.example", "Accept: a/b",
              "anthropic-version: 1", "Authorization: Bearer x", "Upgrade: h2c", " folded",
              "No colon", "Range: bytes=0-1"});
    if (Percent(20)) header += std::string(random_() % 20'000, 'x');
    return header;
  }

  std::string Chunks(std::string_view body) {
    std::string chunks;
    while (!body.empty()) {
      const std::string_view piece = body.substr(0, 1 + random_() % 60);
      body.remove_prefix(piece.size());
      absl::StrAppend(&chunks, absl::Hex(piece.size()), "\r\n", std::string(piece), "\r\n");
    }
    chunks += "0\r\n\r\n";
    if (Percent(30)) Change(&chunks);
    return chunks;
  }

  std::mt19937_64 random_;
};

}  // namespace baton
