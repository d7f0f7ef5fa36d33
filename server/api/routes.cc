#include "server/api/routes.h"

#include "server/access/key_holder.h"

namespace baton {
namespace {

constexpr std::string_view kIdPattern = "{id}";

// Whether `path` is one of the pattern's; if so, *rest is what stands for its * or {id}.
bool Matches(std::string_view pattern, std::string_view path, std::string_view* rest) {
  if (const size_t at = pattern.find(kIdPattern); at != std::string_view::npos) {
    const std::string_view after = pattern.substr(at + kIdPattern.size());
    if (path.size() <= at + after.size() || !path.starts_with(pattern.substr(0, at)) ||
        !path.ends_with(after))
      return false;
    *rest = path.substr(at, path.size() - at - after.size());
    return rest->find('/') == std::string_view::npos;
  }
  if (!pattern.ends_with('*')) return path == pattern;
  pattern.remove_suffix(1);
  if (!path.starts_with(pattern)) return false;
  *rest = path.substr(pattern.size());
  return true;
}

}  // namespace

std::string ApiCall::tenant() const {
  return request.holder == nullptr ? "" : request.holder->tenant;
}

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

std::string_view RouteLabel(std::span<const Route> routes, std::string_view path) {
  const FoundRoute found = FindRoute(routes, "POST", path);
  if (found.methods.empty()) return "unknown";
  return found.route == nullptr || found.route->label.empty() ? "other" : found.route->label;
}

}  // namespace baton
