#include "router/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

// A turn that was told before and is told again has lasted from the one report to the other. But of
// a longer gap only so much counts: worker or router may have been stopped meanwhile, and a stopped
// engine has done nothing wrong.
constexpr absl::Duration kMaxGap = absl::Seconds(1);

constexpr StateRow kMemberStates[] = {
    {"present", "worker_silence since it was heard of",
     "gone: its stream is closed, its requests are dispatched anew"},
    {"draining", "worker_silence since it was heard of",
     "gone: its stream is closed, its requests are dispatched anew"},
    {"gone", "", ""},
};
constexpr TransitionRow kMemberTransitions[] = {
    Move(MemberState::kPresent, MemberState::kDraining),
    Move(MemberState::kPresent, MemberState::kGone),
    Move(MemberState::kDraining, MemberState::kGone),
};

// Fields that are the same on all workers, as text.
const std::pair<const char*, std::string (*)(const WorkerAnnounce&)> kShared[] = {
    {"model_fingerprint",
     [](const WorkerAnnounce& w) { return absl::StrFormat("%016x", w.model_fingerprint); }},
    {"numerics_id", [](const WorkerAnnounce& w) { return w.numerics_id; }},
    {"layout_id", [](const WorkerAnnounce& w) { return w.layout_id; }},
    {"page_tokens", [](const WorkerAnnounce& w) { return absl::StrCat(w.page_tokens); }}};

absl::Status CheckSame(const WorkerAnnounce& here, const WorkerAnnounce& newcomer) {
  for (const auto& [field, text_of] : kShared)
    if (text_of(here) != text_of(newcomer))
      return absl::FailedPreconditionError(absl::StrFormat(
          "worker %s has %s %s, but worker %s of this cluster has %s: start them with the same "
          "model, build and KV settings",
          newcomer.name, field, text_of(newcomer), here.name, text_of(here)));
  return absl::OkStatus();
}

}  // namespace

const MachineTable& MembershipTable() {
  static constexpr MachineTable kTable{.machine = "membership",
                                       .owner = "Membership of the Router, front thread",
                                       .states = kMemberStates,
                                       .transitions = kMemberTransitions};
  return kTable;
}

absl::Status Membership::Join(const WorkerAnnounce& worker, absl::Time now) {
  if (members_.contains(worker.incarnation))
    return absl::FailedPreconditionError(
        absl::StrFormat("worker %s announced itself twice on one stream", worker.name));
  RETURN_IF_ERROR(CheckTable(worker));
  if (!members_.empty()) RETURN_IF_ERROR(CheckSame(members_.begin()->second.about, worker));
  Member member{worker, {MembershipTable(), transitions_}, now};
  member.load.prefill_cost = worker.prefill_cost;
  member.load.pages_free = worker.pages_total;
  member.load.clock_us = worker.clock_us;
  member.load_at = now;
  members_.try_emplace(worker.incarnation, std::move(member));
  return absl::OkStatus();
}

absl::Status Membership::CheckTable(const WorkerAnnounce& worker) const {
  if (table_ == nullptr || (table_->model_fingerprint == worker.model_fingerprint &&
                            table_->numerics_id == worker.numerics_id))
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the partition table was tuned for model %s (%016x, %s), worker %s has %016x, %s: tune it "
      "with this model (baton tune), or set lab.partition to closed",
      table_->model, table_->model_fingerprint, table_->numerics_id, worker.name,
      worker.model_fingerprint, worker.numerics_id));
}

void Membership::Leave(Incarnation worker) {
  const auto it = members_.find(worker);
  if (it == members_.end()) return;
  it->second.state = MemberState::kGone;
  members_.erase(it);
}

// A worker that has just joined is believed how long its turn lasts: it may have been given up for
// that, and have dialled again.
void Membership::OnHeard(Incarnation worker, const EngineTurn& turn, absl::Time now) {
  const auto it = members_.find(worker);
  if (it == members_.end()) return;
  Member& member = it->second;
  const absl::Duration told = absl::Microseconds(turn.age_us);
  if (member.patience == absl::InfiniteDuration()) {
    member.turned = told;
  } else {
    const absl::Duration before = turn.turns == member.turns ? member.turned : absl::ZeroDuration();
    member.turned = std::min(told, before + std::min(now - member.heard_at, kMaxGap));
  }
  member.patience =
      absl::Microseconds(turn.PatienceUs(absl::ToInt64Microseconds(engine_patience_)));
  member.turns = turn.turns;
  member.heard_at = now;
}

void Membership::ForgiveSilence(absl::Time now) {
  for (auto& [id, member] : members_) member.heard_at = now;
}

std::vector<Incarnation> Membership::NotHeardSince(absl::Time time) const {
  std::vector<Incarnation> silent;
  for (const auto& [id, member] : members_)
    if (member.heard_at < time) silent.push_back(id);
  return silent;
}

absl::Status Membership::CheckLoad(Incarnation worker, const WorkerLoad& load) const {
  const WorkerAnnounce& about = members_.at(worker).about;
  if (load.pages_free > about.pages_total)
    return absl::InvalidArgumentError(
        absl::StrFormat("load.pages_free is %d, but the worker announced %d pages", load.pages_free,
                        about.pages_total));
  if (load.decode_rows > about.max_batch)
    return absl::InvalidArgumentError(
        absl::StrFormat("load.decode_rows is %d, but the worker announced a batch of at most %d",
                        load.decode_rows, about.max_batch));
  return absl::OkStatus();
}

void Membership::OnLoad(Incarnation worker, const WorkerLoad& load, absl::Time now) {
  Member& member = members_.at(worker);
  member.load = load;
  std::sort(member.load.links.begin(), member.load.links.end(),
            [](const LinkRate& a, const LinkRate& b) { return a.peer < b.peer; });
  member.load_at = now;
  if (load.pages_free >= member.no_room_pages) member.no_room_until = absl::InfinitePast();
  if (load.draining) member.state = MemberState::kDraining;
}

void Membership::OnNoRoom(Incarnation worker, int32_t pages, absl::Duration expected_wait,
                          absl::Time now) {
  Member& member = members_.at(worker);
  member.no_room_until = now + expected_wait;
  member.no_room_pages = pages;
}

const WorkerAnnounce* Membership::Find(Incarnation worker) const {
  const auto it = members_.find(worker);
  return it == members_.end() ? nullptr : &it->second.about;
}

bool Membership::serves() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return entry.second.state == MemberState::kPresent; });
}

int32_t Membership::page_tokens() const {
  return members_.empty() ? 0 : members_.begin()->second.about.page_tokens;
}

PoolSizing::Worker Membership::Typical() const {
  PoolSizing::Worker typical{.page_tokens = page_tokens()};
  for (const auto& [id, member] : members_) {
    const WorkerLoad& load = member.load;
    if (member.about.role != Role::kDecode && !typical.prefill.is_known())
      typical.prefill = load.prefill_cost;
    if (member.about.role == Role::kPrefill || typical.step.is_known()) continue;
    typical.step = load.step_cost;
    typical.max_batch = member.about.max_batch;
    typical.pages_total = member.about.pages_total;
  }
  return typical;
}

void Membership::FillView(ClusterView* view) const {
  if (!members_.empty()) {  // Join compared them
    view->model_fingerprint = members_.begin()->second.about.model_fingerprint;
    view->numerics_id = members_.begin()->second.about.numerics_id;
  }
  for (const auto& [id, member] : members_) {
    if (member.state == MemberState::kDraining) continue;
    view->standing_workers += member.stands();
    view->prefill_workers += member.takes_work() && member.about.role != Role::kDecode;
    const int64_t context = member.about.max_context;
    view->max_context = view->max_context == 0 ? context : std::min(view->max_context, context);
    if (member.about.role == Role::kPrefill) continue;
    view->decode_workers += member.takes_work();
    view->kv_pages_total += member.about.pages_total;
    view->kv_pages_free += member.load.pages_free;
  }
}

}  // namespace baton
