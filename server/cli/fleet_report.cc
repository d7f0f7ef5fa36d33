#include "server/cli/fleet_report.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/load/http_client.h"
#include "server/cli/key_header.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr double kSilentMs = 3000;  // a worker that tells nothing for so long
constexpr double kSlowLink = 3;     // times slower than the fastest
constexpr double kClocksApart = 1;  // seconds

struct Advice {
  const char* reason;
  const char* what;
};
// Says what to change, by the reason why the router refused a peer (proto/join_fault.h).
constexpr std::array kAdvice = {
    Advice{"no_certificate", "give the worker cluster.tls_cert, tls_key and tls_ca"},
    Advice{"foreign_certificate", "its certificate is of another authority than cluster.tls_ca"},
    Advice{"expired_certificate", "renew its certificate, or set its clock"},
    Advice{"no_role", "its certificate needs the name baton://CLUSTER/ROLE"},
    Advice{"other_cluster", "its certificate is of another cluster"},
    Advice{"other_role", "its certificate is of another role than the worker's"},
    Advice{"missing_proof", "it runs another version, or is no worker"},
    Advice{"other_key", "give it the same cluster.key_file"},
    Advice{"replayed_proof", "somebody repeats what a worker said, or its connection was cut"},
    Advice{"other_version", "run the same version of baton everywhere"},
};

std::string TextOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

double NumberOf(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  boost::system::error_code error;
  return value == nullptr ? 0 : value->to_number<double>(error);
}

bool IsTrue(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

const json::array& ArrayOf(const json::object& object, const char* key) {
  static const json::array kNone;
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_array() ? value->get_array() : kNone;
}

std::vector<const json::object*> ObjectsOf(const json::object& object, const char* key) {
  std::vector<const json::object*> objects;
  for (const json::value& each : ArrayOf(object, key))
    if (each.is_object()) objects.push_back(&each.get_object());
  return objects;
}

void InspectWorkers(const json::object& live, std::vector<Finding>* findings) {
  int n = 0, draining = 0;
  for (const json::object* worker : ObjectsOf(live, "workers")) {
    ++n;
    const std::string name = TextOf(*worker, "name");
    if (IsTrue(*worker, "draining")) ++draining;
    if (IsTrue(*worker, "standing")) {
      findings->push_back(Bad("worker", name +
                                            ": its engine stands still; look at memory, "
                                            "processor and log of its host (BatonWorkerStands)"));
    } else if (const double silent = NumberOf(*worker, "silent_ms"); silent > kSilentMs) {
      findings->push_back(Note(
          "worker", absl::StrFormat("%s: silent for %.1f s; look at the network between it and the "
                                    "router, and whether it swaps",
                                    name, silent / 1000)));
    }
  }
  const std::string text = absl::StrCat(n, " workers, ", draining, " of them draining");
  if (IsTrue(live, "ready")) {
    findings->push_back(Good("workers", text));
  } else {
    findings->push_back(
        Bad("workers", text + "; the router is not ready: its /readyz says which workers lack"));
  }
}

Finding BrokenLink(const std::string& ends, const std::string& source) {
  return Bad(
      "link",
      absl::StrCat(ends,
                   ": broken, no KV gets through though both workers are here, so requests "
                   "avoid the pair; let each of them reach cluster.worker_host and "
                   "kvtransfer.ports of the other (firewall, route, kvtransfer.allowed_cidrs), "
                   "and look at the log of ",
                   source));
}

void InspectLinks(const json::object& live, std::vector<Finding>* findings) {
  std::map<std::string, std::string> names;
  for (const json::object* worker : ObjectsOf(live, "workers"))
    names[TextOf(*worker, "incarnation")] = TextOf(*worker, "name");
  std::map<std::string, double> rates;  // by "from -> to"
  bool has_broken = false;
  for (const json::object* worker : ObjectsOf(live, "workers")) {
    for (const json::object* link : ObjectsOf(*worker, "links")) {
      const std::string to = TextOf(*link, "to");
      const double rate = NumberOf(*link, "bytes_per_second");
      const std::string ends =
          absl::StrCat(TextOf(*worker, "name"), " -> ", names.contains(to) ? names[to] : to);
      if (IsTrue(*link, "broken")) {
        has_broken = true;
        findings->push_back(BrokenLink(ends, TextOf(*worker, "name")));
      } else if (rate > 0) {
        rates[ends] = rate;
      }
    }
  }
  if (rates.empty()) {
    if (has_broken) return;
    findings->push_back(Note("links", "none has carried KV yet: send a request first"));
    return;
  }
  const auto by_rate = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [slow, fast] = std::minmax_element(rates.begin(), rates.end(), by_rate);
  const std::string text =
      absl::StrFormat("%d measured, %.2f GB/s (%s) to %.2f GB/s (%s)", rates.size(),
                      slow->second / 1e9, slow->first, fast->second / 1e9, fast->first);
  if (slow->second * kSlowLink >= fast->second) {
    findings->push_back(Good("links", text));
    return;
  }
  findings->push_back(
      Note("links", text + "; between hosts of one kind look at the slow one's network device "
                           "(ethtool), at cluster.worker_host, and at what else it carries"));
}

void InspectModels(const json::object& cluster, const OwnModel& own,
                   std::vector<Finding>* findings) {
  const std::string fingerprint = TextOf(cluster, "model_fingerprint");
  const std::string numerics = TextOf(cluster, "numerics_id");
  if (numerics.empty()) return;  // no worker
  const std::string text = absl::StrCat(TextOf(cluster, "model"), ", ", fingerprint, ", numerics ",
                                        numerics, " on every worker");
  if (own.numerics_id.empty() || (own.fingerprint == fingerprint && own.numerics_id == numerics)) {
    findings->push_back(Good("fleet model", text));
    return;
  }
  findings->push_back(Bad(
      "fleet model", absl::StrCat(text, "; this host's ", own.name, " is ", own.fingerprint,
                                  ", numerics ", own.numerics_id,
                                  ", so its workers would be refused: give them the same files, "
                                  "model.dtype, model.page_tokens and kv.dtype")));
}

void InspectRefusals(const std::string& metrics, std::vector<Finding>* findings) {
  constexpr char kSeries[] = "baton_workers_refused_total{reason=\"";
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(metrics, '\n'))) {
    if (!absl::StartsWith(line, kSeries)) continue;
    const std::string rest = line.substr(sizeof kSeries - 1);
    const std::string reason = rest.substr(0, rest.find('"'));
    double n = 0;
    if (!absl::SimpleAtod(rest.substr(rest.rfind(' ') + 1), &n) || n <= 0) continue;
    const auto advice = std::find_if(kAdvice.begin(), kAdvice.end(),
                                     [&](const Advice& each) { return each.reason == reason; });
    findings->push_back(
        Note("refused peers",
             absl::StrFormat("%.0f times %s: %s", n, reason,
                             advice == kAdvice.end() ? "see the router's log" : advice->what)));
  }
}

void InspectClocks(const json::object& live, absl::Time date, std::vector<Finding>* findings) {
  const double apart = absl::ToDoubleSeconds(date - absl::UnixEpoch()) - NumberOf(live, "now");
  const std::string text = absl::StrFormat("this host's is %.3f s %s the router's", std::abs(apart),
                                           apart < 0 ? "behind" : "ahead of");
  if (std::abs(apart) <= kClocksApart) {
    findings->push_back(Good("clocks", text));
    return;
  }
  findings->push_back(
      Note("clocks", text + "; certificates, logs and traces need one time: run chrony or "
                            "systemd-timesyncd on both"));
}

absl::StatusOr<HttpResponse> Page(const HttpClient& client, const std::string& path,
                                  const std::map<std::string, std::string>& headers) {
  ASSIGN_OR_RETURN(HttpResponse answer, client.Get(path, headers));
  if (answer.status == 200) return answer;
  if (answer.status == 401 || answer.status == 403) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": the router answers ", answer.status,
                     ": give a key with the scope admin, --key-file FILE"));
  }
  return absl::UnavailableError(absl::StrCat(path, ": HTTP ", answer.status,
                                             "; is --cluster the address of a router's API?"));
}

}  // namespace

absl::StatusOr<FleetPages> FetchFleetPages(const std::string& url, const std::string& key_file) {
  ASSIGN_OR_RETURN(const HttpUrl parsed, HttpUrl::Parse(url));
  ASSIGN_OR_RETURN(const auto headers, KeyHeader(key_file));
  const HttpClient client(parsed, absl::Seconds(5));
  FleetPages pages;
  ASSIGN_OR_RETURN(const HttpResponse cluster, Page(client, "/v1/cluster", headers));
  pages.cluster = cluster.body;
  const absl::Time asked = absl::Now();
  ASSIGN_OR_RETURN(const HttpResponse live, Page(client, "/v1/cluster/live", headers));
  pages.live = live.body;
  pages.date = asked + (absl::Now() - asked) / 2;
  const auto metrics = Page(client, "/metrics", headers);
  if (metrics.ok()) pages.metrics = metrics->body;
  return pages;
}

std::vector<Finding> InspectFleet(const FleetPages& pages, const OwnModel& own) {
  boost::system::error_code error;
  const json::value cluster = json::parse(pages.cluster, error);
  const json::value live = error ? json::value() : json::parse(pages.live, error);
  if (error || !cluster.is_object() || !live.is_object()) {
    return {Bad("cluster",
                "the answers are no router's: give the address of its API, --cluster "
                "http://HOST:PORT")};
  }
  std::vector<Finding> findings;
  InspectWorkers(live.get_object(), &findings);
  InspectModels(cluster.get_object(), own, &findings);
  InspectLinks(live.get_object(), &findings);
  InspectRefusals(pages.metrics, &findings);
  InspectClocks(live.get_object(), pages.date, &findings);
  return findings;
}

}  // namespace baton
