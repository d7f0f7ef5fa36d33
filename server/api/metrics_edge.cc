#include "server/api/metrics_edge.h"

#include <algorithm>
#include <iterator>

namespace baton {

std::vector<Route> RoutesOf(std::span<const Route> routes, Scope scope) {
  std::vector<Route> found;
  std::copy_if(routes.begin(), routes.end(), std::back_inserter(found),
               [scope](const Route& route) { return route.scope == scope; });
  return found;
}

std::vector<Route> RoutesWithout(std::span<const Route> routes, Scope scope) {
  std::vector<Route> found;
  std::copy_if(routes.begin(), routes.end(), std::back_inserter(found),
               [scope](const Route& route) { return route.scope != scope; });
  return found;
}

}  // namespace baton
