#include "server/pull/file_digest.h"

#include <openssl/evp.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {

struct FileDigest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

FileDigest::FileDigest(DigestKind kind, int64_t size) : state_(std::make_unique<State>()) {
  const EVP_MD* type = kind == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1();
  BATON_CHECK(EVP_DigestInit_ex(state_->context, type, nullptr) == 1);
  if (kind == DigestKind::kGitBlob) Take(absl::StrCat("blob ", size) + std::string(1, '\0'));
}

FileDigest::~FileDigest() = default;
FileDigest::FileDigest(FileDigest&&) noexcept = default;
FileDigest& FileDigest::operator=(FileDigest&&) noexcept = default;

void FileDigest::Take(std::string_view bytes) {
  BATON_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string FileDigest::Hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  BATON_CHECK(EVP_DigestFinal_ex(state_->context, digest, &n) == 1);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < n; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace baton
