#include "common/page_name.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "common/check.h"

namespace baton {
namespace {

EVP_MAC_CTX* MakeContext() {
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  BATON_CHECK(mac != nullptr);
  EVP_MAC_CTX* const context = EVP_MAC_CTX_new(mac);
  EVP_MAC_free(mac);
  BATON_CHECK(context != nullptr);
  size_t bytes = sizeof(PageName);
  const OSSL_PARAM size[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &bytes),
                             OSSL_PARAM_construct_end()};
  BATON_CHECK(EVP_MAC_CTX_set_params(context, size) == 1);
  return context;
}

}  // namespace

void PageNamer::Free::operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }

// The key is derived, because tickets are signed with the cluster's.
PageNamer::PageNamer(const ClusterKey& key) : context_(MakeContext()) {
  constexpr std::string_view kUse = "baton page names v1";
  const std::array<uint8_t, 32> derived = ClusterMac(key, kUse.data(), kUse.size());
  std::copy_n(derived.begin(), key_.size(), key_.begin());
}

PageName PageNamer::After(const PageName& before, std::span<const int32_t> tokens) const {
  PageName name;
  uint8_t bytes[sizeof(name)];
  size_t n_bytes = 0;
  EVP_MAC_CTX* const context = context_.get();
  BATON_CHECK(
      EVP_MAC_init(context, key_.data(), key_.size(), nullptr) == 1 &&
      EVP_MAC_update(context, reinterpret_cast<const uint8_t*>(&before), sizeof(before)) == 1 &&
      EVP_MAC_update(context, reinterpret_cast<const uint8_t*>(tokens.data()),
                     tokens.size_bytes()) == 1 &&
      EVP_MAC_final(context, bytes, &n_bytes, sizeof(bytes)) == 1 && n_bytes == sizeof(bytes));
  std::memcpy(&name, bytes, sizeof(name));
  return name;
}

}  // namespace baton
