#include "server/api/answer_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace baton {
namespace {

// Bytes of an entry beside its texts: nodes of the list and of the map.
constexpr int64_t kEntryBytes = 512;
// There is room for so many answers, however large: one conversation does not drive out all others.
constexpr int64_t kMinAnswers = 4;

}  // namespace

void DeclareAnswerStore(AnswerStoreOptions* options, Settings* settings) {
  settings->Int("server.max_stored_answers", &options->max_answers, 0, 1 << 20,
                "responses and stored chat completions that are kept; 0 = none");
  settings->Bytes("server.max_stored_bytes", &options->max_bytes, 0, int64_t{64} << 30,
                  "of these answers, with their conversations");
}

int64_t StoredAnswer::bytes() const {
  const size_t texts = 2 * id.size() + tenant.size() + body.size() + input.size() +
                       conversation.size() + model.size() + metadata.size();
  return kEntryBytes + static_cast<int64_t>(texts);
}

void AnswerStore::Put(StoredAnswer answer) {
  // Texts that grew by pieces have up to twice the memory that is counted.
  for (std::string* text : {&answer.body, &answer.input, &answer.conversation})
    text->shrink_to_fit();
  uint64_t number = n_put_;
  const auto known = answers_.find(answer.id);
  if (known != answers_.end()) {
    number = known->second->number;
    Drop(known->second);
  } else {
    ++n_put_;
  }
  const int64_t n_bytes = answer.bytes();
  if (options_.max_answers == 0 || n_bytes > options_.max_bytes / kMinAnswers) return;
  while (static_cast<int64_t>(size()) >= options_.max_answers ||
         bytes_ + n_bytes > options_.max_bytes)
    Drop(std::prev(entries_.end()));
  bytes_ += n_bytes;
  entries_.push_front({std::move(answer), number});
  answers_.emplace(entries_.front().answer.id, entries_.begin());
}

const StoredAnswer* AnswerStore::Find(StoredKind kind, std::string_view tenant,
                                      std::string_view id) {
  const auto entry = FindEntry(kind, tenant, id);
  if (entry == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, entry);
  return &entry->answer;
}

bool AnswerStore::Erase(StoredKind kind, std::string_view tenant, std::string_view id) {
  const auto entry = FindEntry(kind, tenant, id);
  if (entry == entries_.end()) return false;
  Drop(entry);
  return true;
}

std::vector<const StoredAnswer*> AnswerStore::All(StoredKind kind, std::string_view tenant) const {
  std::vector<const Entry*> entries;
  for (const Entry& entry : entries_)
    if (entry.answer.kind == kind && entry.answer.tenant == tenant) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->number < b->number; });
  std::vector<const StoredAnswer*> answers;
  answers.reserve(entries.size());
  for (const Entry* entry : entries) answers.push_back(&entry->answer);
  return answers;
}

AnswerStore::Entries::iterator AnswerStore::FindEntry(StoredKind kind, std::string_view tenant,
                                                      std::string_view id) {
  const auto found = answers_.find(std::string(id));
  const bool is_it = found != answers_.end() && found->second->answer.kind == kind &&
                     found->second->answer.tenant == tenant;
  return is_it ? found->second : entries_.end();
}

void AnswerStore::Drop(Entries::iterator entry) {
  bytes_ -= entry->answer.bytes();
  answers_.erase(entry->answer.id);
  entries_.erase(entry);
}

}  // namespace baton
