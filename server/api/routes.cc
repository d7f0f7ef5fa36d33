#include "server/api/routes.h"

namespace baton {
namespace {

// Whether `path` is one of the pattern's; if so, *rest is what stands for its *.
bool Matches(std::string_view pattern, std::string_view path, std::string_view* rest) {
  if (!pattern.ends_with('*')) return path == pattern;
  pattern.remove_suffix(1);
  if (!path.starts_with(pattern)) return false;
  *rest = path.substr(pattern.size());
  return true;
}

}  // namespace

FoundRoute FindRoute(std::span<const Route> routes, std::string_view method,
                     std::string_view path) {
  if (method == "HEAD") method = "GET";
  FoundRoute found;
  for (const Route& route : routes) {
    std::string_view rest;
    if (!Matches(route.path, path, &rest)) continue;
    found.methods.emplace_back(route.method);
    if (found.route != nullptr || route.method != method) continue;
    found.route = &route;
    found.argument = rest;
  }
  return found;
}

}  // namespace baton
