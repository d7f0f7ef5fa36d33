// baton_decisions: how long the router's choice of workers takes, by number of workers, with
// relays considered and without. Microseconds on this machine; no test, since clocks of shared
// machines tell nothing.
#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "router/predictor.h"

namespace baton {
namespace {

constexpr int kRows = 16, kChoices = 3000;

struct Decisions {
  explicit Decisions(int n_workers) {
    for (int i = 0; i < n_workers; ++i) Join(i, i < n_workers / 2 ? Role::kDecode : Role::kPrefill);
    for (const auto& [id, member] : members.all()) Load(id);
    const std::vector<Incarnation> decode = Of(Role::kDecode), prefill = Of(Role::kPrefill);
    for (size_t i = 0; i < decode.size() * kRows; ++i) {
      const Plan plan{.slices = {{prefill[i % prefill.size()], 500}}, .decode = decode[i / kRows]};
      ledger.Reserve(i + 1, plan, {.n_prompt = 500, .max_tokens = 200}, 64, now);
      if (i % kRows == 0) continue;  // one prompt per decode worker is still to be computed
      for (const Incarnation rank : plan.PrefillWorkers()) ledger.OnPrefillComputed(rank, i + 1);
      ledger.OnTokensLeft(plan.decode, i + 1, 100);
    }
  }

  void Join(int i, Role role) {
    WorkerAnnounce about;
    about.incarnation =
        (role == Role::kDecode ? 0 : uint64_t{2} << 62) | static_cast<uint64_t>(i + 1);
    about.role = role;
    about.page_tokens = 64;
    about.pages_total = 1 << 16;
    about.max_context = 1 << 17;
    about.max_batch = 64;
    about.itl_stretch = 1.25;
    about.min_mixed_tokens = 16;
    about.prefill_cost = {.n_layers = 16, .kv_bytes = 2048};
    if (!members.Join(about, now).ok()) std::abort();
  }
  void Load(Incarnation worker) {
    WorkerLoad load;
    const double noise = std::uniform_real_distribution(.9, 1.1)(random);
    load.prefill_cost = {
        .n_layers = 16, .token = 2e-5 * noise, .pair = 3e-9, .extra_tokens = 20, .kv_bytes = 2048};
    load.fitted_tokens = 1 << 20;
    load.step_cost = {.base = 8e-3 * noise, .row = 2e-4, .key = 1e-7, .beside = 1.2};
    for (const auto& [peer, member] : members.all())
      if (peer != worker) load.links.push_back({peer, 1e9 * noise, 50});
    members.OnLoad(worker, load, now);
  }
  std::vector<Incarnation> Of(Role role) const {
    std::vector<Incarnation> workers;
    for (const auto& [id, member] : members.all())
      if (member.about.role == role) workers.push_back(id);
    return workers;
  }

  std::mt19937_64 random{1};
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  Membership members{nullptr, absl::Seconds(2), nullptr};
  Ledger ledger;
  BrokenLinks broken_links;
};

void Measure(int n_workers, bool relays) {
  Decisions d(n_workers);
  RelayRules rules{.min_tokens = relays ? 256 : 0, .max_ranks = 8};
  const Predictor predictor(rules, true, d.members, d.ledger, d.broken_links);
  std::vector<double> us;
  size_t n_relays = 0;
  for (int i = 0; i < kChoices; ++i) {
    AttemptSpec spec{.n_prompt = std::uniform_int_distribution(300, 16'000)(d.random),
                     .max_tokens = 400,
                     .may_relay = true};
    const absl::Time begin = absl::Now();
    const std::optional<Plan> plan = predictor.Choose(spec, {}, d.now);
    us.push_back(absl::ToDoubleMicroseconds(absl::Now() - begin));
    n_relays += plan && plan->is_relay();
  }
  std::sort(us.begin(), us.end());
  std::printf("%4d workers, relays %-3s  p50 %7.1f us  p99 %7.1f us  (%d of %d are relays)\n",
              n_workers, relays ? "on" : "off", us[us.size() / 2], us[us.size() * 99 / 100],
              static_cast<int>(n_relays), kChoices);
}

}  // namespace
}  // namespace baton

int main() {
  for (const int n_workers : {10, 100})
    for (const bool relays : {false, true}) baton::Measure(n_workers, relays);
  return 0;
}
