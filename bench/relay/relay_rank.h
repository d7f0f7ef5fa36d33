// One process of `baton bench relay`: an engine, a pool and a Transfer, told what to do by lines on
// stdin (rank_orders.h) and answering on kAnswerDescriptor. A rank of a relay, one worker alone, or
// a mere sink of KV; which scheme it is part of only the coordinator knows.
//
// Threads: the engine thread (this one, and the engine's own compute threads), and the Transfer's
// link thread, which passes pages on by itself.
#pragma once

namespace baton {

// The exit status; what went wrong is on stderr.
int RunRelayRank();

}  // namespace baton
