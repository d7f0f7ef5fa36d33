#include "server/access/access_options.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return v6.sin6_addr.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

}  // namespace

void DeclareAccess(AccessOptions* options, Settings* settings) {
  settings->Text("server.api_key_file", &options->api_key_file,
                 "file of API keys (docs/SECURITY.md); empty = none, and only loopback is served");
  settings->Bool("server.allow_unauthenticated", &options->allow_unauthenticated,
                 "serve addresses that others reach without API keys");
  settings->Text("server.allowed_hosts", &options->allowed_hosts,
                 "names in the Host header beside localhost, on loopback; a,b or * = any");
}

absl::StatusOr<bool> IsLoopback(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"", host,
                                                   "\" is no address and no name of this machine (",
                                                   ::gai_strerror(error), "); set --host to one"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (!IsLoopbackAddress(each->ai_addr)) return false;
  return true;
}

absl::StatusOr<std::vector<KeyEntry>> ReadAccess(const AccessOptions& options,
                                                 const std::string& host) {
  if (!options.api_key_file.empty()) return ReadKeyFile(options.api_key_file);
  if (options.allow_unauthenticated) return std::vector<KeyEntry>();
  ASSIGN_OR_RETURN(const bool is_loopback, IsLoopback(host));
  if (is_loopback) return std::vector<KeyEntry>();
  return absl::FailedPreconditionError(absl::StrCat(
      "server.host ", host,
      " is reached by others, and everybody could use the model: give --api-key-file FILE (baton "
      "key NAME makes a key), or --allow-unauthenticated if something else keeps strangers out"));
}

}  // namespace baton
