#include "prefill_worker/prompt_state.h"

namespace baton {
namespace {

using S = PromptState;

constexpr StateRow kStates[] = {
    {"queued", "wait_timeout without progress", "ended, kFailed"},
    {"opening", "wait_timeout without progress", "CancelHandoff, ending, kFailed"},
    {"promised", "wait_timeout without progress", "CancelHandoff, ending, kFailed"},
    {"inflow", "wait_timeout without a plane of it", "CancelHandoff, ending, kFailed"},
    {"running", "wait_timeout without a chunk", "CancelHandoff, ending, kFailed"},
    {"committing", "wait_timeout; sooner the handoff source's stall_timeout: HandoffEnded",
     "CancelHandoff, ending, kFailed"},
    // Not by a timer of this object: what may still be read or written must not be given back.
    {"ending", "kDrainTimeoutUs of the handoffs' machines, which close the connection",
     "HandoffEnded, InflowFailed: ended"},
    {"ended", "", ""}};
constexpr TransitionRow kTransitions[] = {
    Move(S::kQueued, S::kOpening),    Move(S::kQueued, S::kRunning),
    Move(S::kQueued, S::kEnded),      Move(S::kOpening, S::kPromised),
    Move(S::kOpening, S::kEnding),    Move(S::kOpening, S::kEnded),
    Move(S::kPromised, S::kRunning),  Move(S::kPromised, S::kEnding),
    Move(S::kPromised, S::kEnded),    Move(S::kRunning, S::kCommitting),
    Move(S::kRunning, S::kEnding),    Move(S::kRunning, S::kEnded),
    Move(S::kQueued, S::kInflow),     Move(S::kPromised, S::kInflow),
    Move(S::kInflow, S::kRunning),    Move(S::kInflow, S::kEnding),
    Move(S::kInflow, S::kEnded),      Move(S::kRunning, S::kInflow),
    Move(S::kCommitting, S::kEnding), Move(S::kCommitting, S::kEnded),
    Move(S::kEnding, S::kEnded)};

}  // namespace

const MachineTable& PromptTable() {
  static const MachineTable table{"prompt", "AdmittedPrompts, engine thread", kStates,
                                  kTransitions};
  return table;
}

}  // namespace baton
