#include "server/pull/curl_library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr char kName[] = "libcurl.so.4";
constexpr unsigned kOldest = 0x075500;  // 7.85

}  // namespace

absl::StatusOr<CurlLibrary> CurlLibrary::Load() {
  void* handle = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return absl::NotFoundError(absl::StrCat("downloading needs ", kName, ": ",
                                            why == nullptr ? "" : why,
                                            "; run: apt-get install libcurl4 ca-certificates"));
  }
  std::string missing;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(handle, name));
    if (*function == nullptr) missing = name;
  };
  CurlLibrary curl{};
  find(&curl.global_init, "curl_global_init");
  find(&curl.version_info, "curl_version_info");
  find(&curl.easy_init, "curl_easy_init");
  find(&curl.easy_setopt, "curl_easy_setopt");
  find(&curl.easy_getinfo, "curl_easy_getinfo");
  find(&curl.easy_strerror, "curl_easy_strerror");
  find(&curl.easy_cleanup, "curl_easy_cleanup");
  find(&curl.slist_append, "curl_slist_append");
  find(&curl.slist_free_all, "curl_slist_free_all");
  find(&curl.multi_init, "curl_multi_init");
  find(&curl.multi_add_handle, "curl_multi_add_handle");
  find(&curl.multi_remove_handle, "curl_multi_remove_handle");
  find(&curl.multi_perform, "curl_multi_perform");
  find(&curl.multi_poll, "curl_multi_poll");
  find(&curl.multi_info_read, "curl_multi_info_read");
  find(&curl.multi_cleanup, "curl_multi_cleanup");
  if (!missing.empty() || curl.version_info(CURLVERSION_NOW)->version_num < kOldest ||
      curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return absl::NotFoundError(absl::StrCat(
        kName, missing.empty() ? "" : " has no " + missing,
        ": it is older than 7.85 or broken; run: apt-get install --reinstall libcurl4"));
  }
  return curl;
}

}  // namespace baton
