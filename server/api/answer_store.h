// The answers that clients may ask for again by their ids: responses, and chat completions that
// were to be stored. Bounded in number and in bytes: the one that was used longest ago goes first.
// A plain object of the front thread.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/settings.h"

namespace baton {

struct AnswerStoreOptions {
  int64_t max_answers = 1000;  // 0: none is stored
  int64_t max_bytes = 64 << 20;
};

// Declares the settings server.max_stored_*.
void DeclareAnswerStore(AnswerStoreOptions* options, Settings* settings);

enum class StoredKind { kResponse, kChatCompletion };

struct StoredAnswer {
  StoredKind kind = StoredKind::kResponse;
  std::string id{};
  std::string tenant{};  // whose it is: nobody else finds it; empty: there are no keys
  std::string body{};    // the JSON object that clients get, without metadata of a chat completion
  std::string input{};   // JSON: the items of a response as sent, the messages of a chat
  // JSON array of chat messages, the answer's last: what an answer to this one goes on with.
  // Empty: a chat, or a response that still runs.
  std::string conversation{};
  bool is_cancelled = false;
  std::string model{};     // of a chat, like the two below
  std::string metadata{};  // JSON object
  int64_t created = 0;     // seconds since 1970

  int64_t bytes() const;  // in the store
};

class AnswerStore {
 public:
  explicit AnswerStore(const AnswerStoreOptions& options) : options_(options) {}

  // Keeps the answer, in place of the one with its id, and lets others go until there is room.
  // An answer that is larger than a fourth of all the room is not kept.
  void Put(StoredAnswer answer);
  // Counts as use. Null: unknown, or gone. Valid until the next call that is not const.
  const StoredAnswer* Find(StoredKind kind, std::string_view tenant, std::string_view id);
  // False: unknown. An answer of another kind or tenant is none.
  bool Erase(StoredKind kind, std::string_view tenant, std::string_view id);
  // Lists a tenant's answers of a kind in the order of their first Put.
  std::vector<const StoredAnswer*> All(StoredKind kind, std::string_view tenant) const;

  size_t size() const { return answers_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    StoredAnswer answer;
    uint64_t number;  // counts first Puts
  };
  using Entries = std::list<Entry>;

  Entries::iterator FindEntry(StoredKind kind, std::string_view tenant, std::string_view id);
  void Drop(Entries::iterator entry);

  const AnswerStoreOptions options_;
  Entries entries_;                                              // the last used one first
  absl::flat_hash_map<std::string, Entries::iterator> answers_;  // by id, which differ
  int64_t bytes_ = 0;
  uint64_t n_put_ = 0;
};

}  // namespace baton
