#include "server/cli/pull.h"

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/secret_file.h"
#include "server/config/model_folder.h"
#include "server/pull/model_pull.h"

namespace baton {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

bool IsLoopback(const std::string& hub) {
  for (const char* host : {"http://127.0.0.1", "http://localhost", "http://[::1]"}) {
    absl::string_view rest = hub;
    if (absl::ConsumePrefix(&rest, host) && !absl::StrContains(rest, '@') &&
        (rest.empty() || rest[0] == ':' || rest[0] == '/'))
      return true;
  }
  return false;
}

absl::StatusOr<std::string> ReadToken(const PullCommand& command) {
  if (command.token_file.empty()) return "";
  if (!absl::StartsWith(command.hub, "https://") && !IsLoopback(command.hub)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--hub ", command.hub, ": a token would travel readable; give an https:// address"));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(command.token_file, kMaxTokenBytes));
  const std::string token(absl::StripAsciiWhitespace(text));
  for (const char c : token) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(absl::StrCat(
          command.token_file, ": a token is one word of printable characters, alone in its file"));
    }
  }
  if (!token.empty()) return token;
  return absl::InvalidArgumentError(
      absl::StrCat(command.token_file, ": is empty; put the hub's token into it"));
}

absl::Status Run(const PullCommand& command) {
  const auto model = ParseHubId(command.model.path);
  if (!model) {
    return absl::InvalidArgumentError(absl::StrCat("pull ", command.model.path,
                                                   ": is no model of a hub; write ORG/NAME or "
                                                   "ORG/NAME@REVISION"));
  }
  if (!absl::StartsWith(command.hub, "https://") && !absl::StartsWith(command.hub, "http://")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--hub ", command.hub, ": give the address of a hub, as https://huggingface.co"));
  }
  PullOptions options;
  options.model = *model;
  options.hub = std::string(absl::StripSuffix(command.hub, "/"));
  options.cache = HubCacheFolder(command.model);
  options.include = command.include;
  options.parallel = command.parallel;
  options.fetch.ca_file = command.ca_file;
  ASSIGN_OR_RETURN(options.token, ReadToken(command));
  ASSIGN_OR_RETURN(const CurlLibrary curl, CurlLibrary::Load());
  ModelPull pull(curl, options);
  ASSIGN_OR_RETURN(const PulledModel pulled, pull.Run());
  std::fprintf(stderr, "%s: commit %s, %zu files, %.1f MiB, of them %.1f MiB fetched now\n",
               model->Text().c_str(), pulled.commit.c_str(), pulled.n_files,
               static_cast<double>(pulled.bytes) / 1048576.0,
               static_cast<double>(pulled.fetched_bytes) / 1048576.0);
  std::printf("%s\n", pulled.snapshot.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunPull(const PullCommand& command) {
  const absl::Status status = Run(command);
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton pull: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton
