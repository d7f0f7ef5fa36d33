// Conversations of agents: turns with time to think between them, each with the whole conversation
// as its prompt. Made-up ones, or of the lengths of a trace. Pure functions of options and seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/load/load_trace.h"

namespace baton {

struct ConversationTurn {
  int new_tokens = 1;  // after the answer before
  int answer_tokens = 1;
  double think_s = 0;  // from the answer before to this turn
  double due_s = -1;   // after the start of the run, in place of think_s; -1: by think_s
};

struct Conversation {
  uint64_t number = 0;  // its tokens depend on number and seed
  int user = 0;         // who talks; a user's conversations follow each other
  std::vector<ConversationTurn> turns = {};
};

struct ConversationOptions {
  int n_users = 0;          // that talk at once; 0: the run has no conversations
  int n_conversations = 0;  // 0: one a user
  std::string trace = {};   // bench/traces/README.md; empty: made-up lengths, of these means
  int first_tokens = 512, new_tokens = 64, answer_tokens = 32, n_turns = 6;
  double think_s = 1;
  double length_scale = 1, time_scale = 1;  // of a trace's lengths and times to think
  int max_context = 4096;                   // a conversation ends before the turn that exceeds it
  int vocab = 2048;
  double rate = 0;     // mean turns per second, which are then due by themselves; 0: by think_s
  double seconds = 0;  // with a rate: turns that are due before
  uint64_t seed = 1;
};

// Made-up lengths are uniform from half to one and a half times the mean, times to think
// exponential. With a rate turns are due at random times (Poisson) and go round the users; a
// conversation that is over is followed by a new one. Shapes that are too few, of a trace or made
// up, begin again with other tokens. Errors: an unreadable trace, a line that is no conversation.
absl::StatusOr<std::vector<Conversation>> MakeConversations(const ConversationOptions& options);

// Returns prompt tokens of a turn, if the answers before have the lengths they were asked for.
int PromptTokens(const Conversation& conversation, size_t turn);

// A conversation as it grows: every prompt is the prompt before, the answer's own tokens, new ones.
class ConversationText {
 public:
  // The conversation outlives this object.
  ConversationText(const Conversation& conversation, int vocab, uint64_t seed);

  bool done() const { return next_ == conversation_.turns.size(); }
  const ConversationTurn& next_turn() const { return conversation_.turns[next_]; }
  LoadRequest NextRequest();                            // adds the turn's new tokens
  void TakeAnswer(const std::vector<int32_t>& tokens);  // to the last request; the turn is over

 private:
  const Conversation& conversation_;
  int vocab_;
  uint64_t text_;  // of the new tokens
  size_t next_ = 0;
  uint64_t n_new_ = 0;
  std::vector<int32_t> tokens_;
};

}  // namespace baton
