// The fields that only a request to /v1/responses has: the conversation, and what its answer says
// of it again. Plain data: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace baton {

struct ResponseRequest {
  std::string previous_id;   // of the response that this one goes on with; empty: none
  std::string instructions;  // before the conversation and no part of it
  bool has_instructions = false;
  // JSON array of chat messages: the request's own, then with those before them.
  std::string conversation = "[]";
  std::vector<size_t> message_bytes;   // of the conversation, if it may be cut
  std::set<std::string> custom_tools;  // names of tools whose input is a text, not arguments

  // JSON, as it was sent; empty: absent.
  std::string input, tools, tool_choice, text_format, verbosity, effort;
  std::string safety_identifier, prompt_cache_key, user;
  bool truncates = false;  // the beginning of a conversation that is too long is left out

  bool operator==(const ResponseRequest&) const = default;
};

}  // namespace baton
