// Which files TLS refuses at the start, and that the error names setting, file and remedy.
#include "server/http/tls_context.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/support/certificates.h"

namespace baton {
namespace {

struct Files {
  TempFolder folder;
  TestAuthority authority{"authority"};
  TlsFiles files;

  Files() {
    authority.Issue("served").WriteTo(folder, "served");
    authority.Issue("other").WriteTo(folder, "other");
    folder.Write("ca.pem", authority.pem());
    folder.Write("text.pem", "no PEM at all\n");
    files = {folder.file("served.pem"), folder.file("served.key"), ""};
  }
  // Returns the error, which names the file, or nothing.
  std::string Error(const std::string& named = "") const {
    const auto loaded = TlsContext::Load(files);
    if (loaded.ok()) return "";
    const std::string message(loaded.status().message());
    INFO(message);
    CHECK(absl::IsInvalidArgument(loaded.status()));
    if (!named.empty()) CHECK(message.find(folder.file(named)) != std::string::npos);
    return message;
  }
};

bool Has(const std::string& text, const char* part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("a certificate with its key is taken, and its expiry is known") {
  Files rig;
  CHECK(rig.Error().empty());
  rig.files.client_ca = rig.folder.file("ca.pem");
  CHECK(rig.Error().empty());
  const auto left = (*TlsContext::Load(rig.files))->left();
  CHECK(left > absl::Hours(24 * 89));
  CHECK(left < absl::Hours(24 * 91));
}

TEST_CASE("one of certificate and key, or a client CA alone, is not enough") {
  Files rig;
  rig.files.key.clear();
  CHECK(Has(rig.Error("served.pem"), "server.tls_key is not"));
  rig.files = {"", rig.folder.file("served.key"), ""};
  CHECK(Has(rig.Error("served.key"), "server.tls_cert is not"));
  rig.files = {"", "", rig.folder.file("ca.pem")};
  CHECK(Has(rig.Error(), "set server.tls_cert and server.tls_key"));
}

TEST_CASE("files that are missing, no PEM or of another pair are named") {
  Files rig;
  const TlsFiles good = rig.files;
  rig.files.cert = rig.folder.file("none.pem");
  CHECK(Has(rig.Error("none.pem"), "server.tls_cert"));
  rig.files.cert = rig.folder.file("text.pem");
  CHECK(Has(rig.Error("text.pem"), "must be PEM"));
  rig.files = good;
  rig.files.key = rig.folder.file("none.key");
  CHECK(Has(rig.Error("none.key"), "server.tls_key"));
  rig.files.key = rig.folder.file("other.key");
  CHECK(Has(rig.Error("other.key"), "key of another certificate"));
  rig.files = good;
  rig.files.client_ca = rig.folder.file("none.pem");
  CHECK(Has(rig.Error("none.pem"), "server.tls_client_ca"));
  rig.files.client_ca = rig.folder.file("text.pem");
  CHECK(Has(rig.Error("text.pem"), "has no certificate"));
  rig.files.client_ca.clear();
  CHECK(rig.Error().empty());
}

TEST_CASE("a file that this user may not read is refused") {
  Files rig;
  REQUIRE(::chmod(rig.folder.path().c_str(), 0) == 0);
  const pid_t child = ::fork();  // root may read all, so it is somebody else
  if (child == 0) {
    const bool is_other = ::geteuid() != 0 || ::setuid(65534) == 0;
    ::_exit(is_other && rig.Error("served.pem").find("cannot be read") != std::string::npos ? 0
                                                                                            : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  REQUIRE(::chmod(rig.folder.path().c_str(), 0700) == 0);
}

TEST_CASE("a key that others may read or write is refused") {
  Files rig;
  for (const mode_t mode : {0644u, 0660u}) {
    REQUIRE(::chmod(rig.files.key.c_str(), mode) == 0);
    CHECK(Has(rig.Error("served.key"), "server.tls_key"));
    CHECK(Has(rig.Error("served.key"), "chmod 600"));
  }
  REQUIRE(::chmod(rig.files.key.c_str(), 0640) == 0);
  CHECK(rig.Error().empty());
}

TEST_CASE("a key with a passphrase is refused, and nobody is asked for it") {
  Files rig;
  EVP_PKEY* key = EVP_EC_gen("P-256");
  std::FILE* file = std::fopen(rig.files.key.c_str(), "w");
  REQUIRE(PEM_write_PrivateKey(file, key, EVP_aes_128_cbc(),
                               reinterpret_cast<const unsigned char*>("secret"), 6, nullptr,
                               nullptr) == 1);
  std::fclose(file);
  EVP_PKEY_free(key);
  CHECK(Has(rig.Error("served.key"), "without a passphrase"));
}

TEST_CASE("a certificate outside its time is refused") {
  Files rig;
  rig.authority.Issue("served", absl::Hours(-48), absl::Hours(-24)).WriteTo(rig.folder, "served");
  CHECK(Has(rig.Error("served.pem"), "expired on"));
  rig.authority.Issue("served", absl::Hours(24), absl::Hours(48)).WriteTo(rig.folder, "served");
  CHECK(Has(rig.Error("served.pem"), "is not valid before"));
}

}  // namespace
}  // namespace baton
