#include "decode_worker/sequence_state.h"

namespace baton {
namespace {

using S = SequenceState;

constexpr StateRow kStates[] = {{"expected", "kv_timeout", "CancelHandoff, ended, kFailed"},
                                {"orphan", "orphan_timeout", "its pages are given back, ended"},
                                {"ready", "wait_timeout", "ended, kFailed"},
                                {"decoding", "wait_timeout without a token", "ended, kFailed"},
                                {"ended", "", ""}};
constexpr TransitionRow kTransitions[] = {
    // A sequence that ends with its first token, or whose KV does not fit it, never is ready.
    Move(S::kExpected, S::kOrphan), Move(S::kExpected, S::kReady), Move(S::kExpected, S::kEnded),
    Move(S::kOrphan, S::kReady),    Move(S::kOrphan, S::kEnded),   Move(S::kReady, S::kDecoding),
    Move(S::kReady, S::kEnded),     Move(S::kDecoding, S::kEnded),
};

}  // namespace

const MachineTable& SequenceTable() {
  static const MachineTable table{"sequence", "DecodeBatch, engine thread", kStates, kTransitions};
  return table;
}

}  // namespace baton
