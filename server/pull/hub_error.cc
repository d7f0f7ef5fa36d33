#include "server/pull/hub_error.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int kMaxTries = 4;
constexpr absl::Duration kMaxWait = absl::Minutes(1);
constexpr std::array<int, 6> kPassing = {408, 429, 500, 502, 503, 504};

std::string PageOf(const HubQuestion& question) {
  return absl::StrCat(question.hub, "/", question.model.id);
}

absl::Status NoAccess(const std::string& what, const HubQuestion& question, bool is_gated) {
  const std::string page = PageOf(question);
  if (is_gated && question.has_token) {
    return absl::PermissionDeniedError(absl::StrCat(
        what, "the model is gated and the token's account has no access; ask for it on ", page,
        ", and let the token read gated repositories"));
  }
  if (is_gated) {
    return absl::UnauthenticatedError(
        absl::StrCat(what, "the model is gated: accept its terms on ", page,
                     ", make a token on the hub, and give its file with --token-file FILE"));
  }
  if (question.has_token) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, "the token is wrong, has expired, or may not read ", question.model.id,
                     "; look at the name, or put another token into the file of --token-file"));
  }
  return absl::UnauthenticatedError(
      absl::StrCat(what, "there is no model ", question.model.id,
                   ", or it is private; look at the name, or give a token with --token-file FILE"));
}

}  // namespace

std::string FailureText(const FetchEnd& end) {
  if (!end.sink.ok()) return std::string(end.sink.message());
  if (!end.failure.empty()) return end.failure;
  return absl::StrCat("HTTP ", end.http_status);
}

absl::Status HubError(const FetchEnd& end, const HubQuestion& question) {
  if (!end.sink.ok()) return end.sink;
  const std::string what =
      absl::StrCat(question.model.Text(), question.file.empty() ? "" : ", " + question.file, ": ",
                   FailureText(end), " of ", end.url, ": ");
  if (!end.failure.empty()) {
    return absl::UnavailableError(
        absl::StrCat(what, end.hint, "; what came is kept: run this again to go on"));
  }
  if (end.hub_error == "GatedRepo") return NoAccess(what, question, true);
  if (end.http_status == 401 || end.http_status == 403) return NoAccess(what, question, false);
  if (end.http_status == 404 && end.hub_error == "RevisionNotFound") {
    return absl::NotFoundError(absl::StrCat(what, "the model has no revision ",
                                            question.model.revision, "; ", PageOf(question),
                                            "/tree/main lists branches and tags"));
  }
  if (end.http_status == 404) {
    return absl::NotFoundError(absl::StrCat(what,
                                            "there is no such model, revision or file; look "
                                            "at the name and at --hub"));
  }
  if (end.http_status == 416) {
    return absl::DataLossError(absl::StrCat(
        what, "the hub's file is shorter than it tells; give another revision (@COMMIT) or --hub"));
  }
  if (std::find(kPassing.begin(), kPassing.end(), end.http_status) != kPassing.end()) {
    return absl::UnavailableError(
        absl::StrCat(what,
                     end.http_status == 429 ? "too many requests: wait, or give a token with "
                                              "--token-file FILE; "
                                            : "the hub does not answer now; ",
                     "what came is kept: run this again to go on"));
  }
  return absl::UnknownError(absl::StrCat(what, "no answer of a hub; look at --hub"));
}

std::optional<absl::Duration> FetchRetry::WaitAfter(const FetchEnd& end, bool has_new) {
  if (!end.sink.ok()) return std::nullopt;
  const bool may_pass = end.failure.empty() ? std::find(kPassing.begin(), kPassing.end(),
                                                        end.http_status) != kPassing.end()
                                            : end.may_pass;
  if (has_new) tries_ = 0;
  if (!may_pass || ++tries_ >= kMaxTries) return std::nullopt;
  const absl::Duration wait = absl::Seconds(1 << (tries_ - 1));
  return std::min(std::max(wait, end.retry_after), kMaxWait);
}

}  // namespace baton
