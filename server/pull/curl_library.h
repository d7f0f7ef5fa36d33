// libcurl, loaded when a command needs it: it brings two dozen libraries along, which a process
// that serves has no use for. Any thread; loading once at a time.
#pragma once

#define CURL_DISABLE_TYPECHECK  // its macros would stand in for the functions' names
#include <curl/curl.h>

#include "common/status.h"

namespace baton {

// The functions of libcurl that are used, by its own names.
struct CurlLibrary {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_version_info) version_info;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_multi_cleanup) multi_cleanup;

  // NotFound: libcurl is not installed, too old, or lacks a function; the error says which package
  // to install. It stays loaded until the process ends.
  static absl::StatusOr<CurlLibrary> Load();
};

}  // namespace baton
