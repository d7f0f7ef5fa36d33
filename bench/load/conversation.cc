#include "bench/load/conversation.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

using Turns = std::vector<ConversationTurn>;

// Bits of the texts that no request of a trace and no synthetic one has.
constexpr uint64_t kConversationTexts = uint64_t{1} << 44;

int Scaled(double length, double scale) {
  return static_cast<int>(std::max(1.0, std::round(length * scale)));
}

Turns MadeUpTurns(const ConversationOptions& options, std::mt19937_64& random) {
  const auto about = [&](int mean) {
    return Scaled(mean, std::uniform_real_distribution<double>(0.5, 1.5)(random));
  };
  Turns turns;
  for (int i = 0; i < options.n_turns; ++i) {
    ConversationTurn& turn = turns.emplace_back();
    turn.new_tokens = about(i == 0 ? options.first_tokens : options.new_tokens);
    turn.answer_tokens = about(options.answer_tokens);
    if (i > 0 && options.think_s > 0) {
      turn.think_s = std::exponential_distribution<double>(1 / options.think_s)(random);
    }
  }
  return turns;
}

// Throws where the line is not as it should be.
Turns TurnsOfLine(const boost::json::object& line, const ConversationOptions& options) {
  Turns turns;
  double before = 0;  // tokens of the conversation, as recorded
  for (const boost::json::value& value : line.at("turns").as_array()) {
    const double input = value.at("input_length").to_number<double>();
    const double output = value.at("output_length").to_number<double>();
    const double think_s = value.at("think_time").to_number<double>();
    turns.push_back({Scaled(input - before, options.length_scale),
                     Scaled(output, options.length_scale),
                     turns.empty() ? 0 : think_s * options.time_scale});
    before = input + output;
  }
  return turns;
}

absl::StatusOr<std::vector<Turns>> ReadTurns(const ConversationOptions& options) {
  std::ifstream file(options.trace);
  if (!file) return absl::NotFoundError("trace " + options.trace + ": cannot be opened");
  std::vector<Turns> all;
  std::string line;
  while (std::getline(file, line)) {
    try {  // Boost.JSON's checked accessors throw
      all.push_back(TurnsOfLine(boost::json::parse(line).as_object(), options));
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "trace %s line %d: no conversation: %s", options.trace, all.size() + 1, error.what()));
    }
  }
  if (all.empty()) return absl::InvalidArgumentError("trace " + options.trace + " is empty");
  return all;
}

// Drops the turns that do not fit; shortens the first one, which always stays.
void Fit(int max_context, Turns* turns) {
  ConversationTurn& first = turns->front();
  first.answer_tokens = std::min(first.answer_tokens, max_context / 2);
  first.new_tokens = std::min(first.new_tokens, max_context - first.answer_tokens);
  int n = 0;
  const auto beyond = std::find_if(turns->begin(), turns->end(), [&](const ConversationTurn& turn) {
    n += turn.new_tokens + turn.answer_tokens;
    return n > max_context;
  });
  turns->erase(beyond, turns->end());
}

int Number(const ConversationOptions& options) {
  return options.n_conversations > 0 ? options.n_conversations : options.n_users;
}

std::vector<Conversation> ByThinking(const ConversationOptions& options,
                                     const std::vector<Turns>& shapes) {
  std::vector<Conversation> conversations;
  for (int i = 0; i < Number(options); ++i) {
    const size_t shape = static_cast<size_t>(i) % shapes.size();
    conversations.push_back({static_cast<uint64_t>(i), i % options.n_users, shapes[shape]});
  }
  return conversations;
}

std::vector<Conversation> ByRate(const ConversationOptions& options,
                                 const std::vector<Turns>& shapes, std::mt19937_64& random) {
  const auto shape_of = [&](const Conversation& conversation) -> const Turns& {
    return shapes[conversation.number % shapes.size()];
  };
  size_t n_turns = 0;  // if no time ends the run
  for (const Conversation& conversation : ByThinking(options, shapes))
    n_turns += conversation.turns.size();
  std::vector<Conversation> conversations;
  std::vector<size_t> current(static_cast<size_t>(options.n_users));  // of each user
  double due_s = 0;
  for (size_t i = 0; options.seconds > 0 || i < n_turns; ++i) {
    due_s += std::exponential_distribution<double>(options.rate)(random);
    if (options.seconds > 0 && due_s >= options.seconds) break;
    const size_t user = i % current.size();
    const bool is_first = i < current.size();
    if (is_first || conversations[current[user]].turns.size() ==
                        shape_of(conversations[current[user]]).size()) {
      current[user] = conversations.size();
      conversations.push_back({conversations.size(), static_cast<int>(user)});
    }
    Conversation& conversation = conversations[current[user]];
    conversation.turns.push_back(shape_of(conversation)[conversation.turns.size()]);
    conversation.turns.back().due_s = due_s;
  }
  return conversations;
}

}  // namespace

absl::StatusOr<std::vector<Conversation>> MakeConversations(const ConversationOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<Turns> shapes;
  if (!options.trace.empty()) {
    ASSIGN_OR_RETURN(shapes, ReadTurns(options));
  } else {
    for (int i = 0; i < Number(options); ++i) shapes.push_back(MadeUpTurns(options, random));
  }
  for (const Turns& turns : shapes)
    if (turns.empty()) return absl::InvalidArgumentError("a conversation has no turns");
  for (Turns& turns : shapes) Fit(options.max_context, &turns);
  return options.rate > 0 ? ByRate(options, shapes, random) : ByThinking(options, shapes);
}

int PromptTokens(const Conversation& conversation, size_t turn) {
  int n = conversation.turns[turn].new_tokens;
  for (size_t i = 0; i < turn; ++i)
    n += conversation.turns[i].new_tokens + conversation.turns[i].answer_tokens;
  return n;
}

ConversationText::ConversationText(const Conversation& conversation, int vocab, uint64_t seed)
    : conversation_(conversation),
      vocab_(vocab),
      text_((seed << 48) ^ (kConversationTexts + conversation.number)) {}

LoadRequest ConversationText::NextRequest() {
  for (int i = 0; i < next_turn().new_tokens; ++i) {
    tokens_.push_back(MadeUpToken(text_, n_new_++, vocab_));
  }
  return {.prompt = tokens_, .max_tokens = next_turn().answer_tokens, .return_tokens = true};
}

void ConversationText::TakeAnswer(const std::vector<int32_t>& tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ++next_;
}

}  // namespace baton
