// The store of answers: bounded in number and in bytes, and what was used longest ago goes first.
#include "server/api/answer_store.h"

#include <catch2/catch.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

StoredAnswer Answer(const std::string& id, size_t n_bytes = 10,
                    StoredKind kind = StoredKind::kResponse) {
  return {.kind = kind, .id = id, .body = std::string(n_bytes, 'x')};
}

bool Has(AnswerStore& store, const std::string& id, StoredKind kind = StoredKind::kResponse) {
  return store.Find(kind, "", id) != nullptr;
}

TEST_CASE("of a thousand and one answers the one that was used longest ago is gone") {
  AnswerStore store{AnswerStoreOptions()};
  for (int i = 0; i < 1000; ++i) store.Put(Answer(absl::StrCat("r", i)));
  CHECK(store.size() == 1000);
  CHECK(Has(store, "r0"));  // used now
  store.Put(Answer("r1000"));
  CHECK(store.size() == 1000);
  CHECK(Has(store, "r0"));
  CHECK_FALSE(Has(store, "r1"));
  CHECK(Has(store, "r2"));
  CHECK(Has(store, "r1000"));
}

TEST_CASE("bytes are counted, with those of ids and conversations, and bounded") {
  AnswerStore store({.max_answers = 100, .max_bytes = 20000});
  store.Put(Answer("a", 3000));
  const int64_t alone = store.bytes();
  CHECK(alone > 3000);
  CHECK(alone < 4000);
  StoredAnswer long_one = Answer("b", 10);
  long_one.conversation = std::string(3000, 'c');
  long_one.input = std::string(1000, 'i');
  CHECK(long_one.bytes() > 4000);
  store.Put(long_one);
  store.Put(Answer("c", 4400));
  store.Put(Answer("c2", 4400));
  CHECK(store.size() == 4);
  CHECK(store.bytes() <= 20000);
  store.Put(Answer("d", 4400));  // the oldest must go
  CHECK(store.bytes() <= 20000);
  CHECK_FALSE(Has(store, "a"));
  CHECK(Has(store, "d"));
  // An answer of more than a fourth of all drives nothing out.
  const int64_t before = store.bytes();
  store.Put(Answer("huge", 5000));
  CHECK_FALSE(Has(store, "huge"));
  CHECK(store.bytes() == before);
  for (const char* id : {"b", "c", "c2", "d"}) store.Erase(StoredKind::kResponse, "", id);
  CHECK(store.size() == 0);
  CHECK(store.bytes() == 0);
}

TEST_CASE("a text has no more memory in the store than is counted") {
  AnswerStore store{AnswerStoreOptions()};
  StoredAnswer answer = Answer("a", 100);
  answer.body.reserve(100000);
  store.Put(std::move(answer));
  CHECK(store.Find(StoredKind::kResponse, "", "a")->body.capacity() < 200);
}

TEST_CASE("a second Put takes the place of the first, in order and in bytes") {
  AnswerStore store{AnswerStoreOptions()};
  const StoredKind chat = StoredKind::kChatCompletion;
  store.Put(Answer("a", 10, chat));
  store.Put(Answer("b", 10, chat));
  store.Put(Answer("c"));
  const int64_t before = store.bytes();
  store.Put(Answer("a", 110, chat));
  CHECK(store.size() == 3);
  CHECK(store.bytes() == before + 100);
  const auto chats = store.All(chat, "");
  REQUIRE(chats.size() == 2);
  CHECK(chats[0]->id == "a");
  CHECK(chats[0]->body.size() == 110);
  CHECK(chats[1]->id == "b");
}

TEST_CASE("an answer of another kind is not found and not erased") {
  AnswerStore store{AnswerStoreOptions()};
  store.Put(Answer("a"));
  CHECK_FALSE(Has(store, "a", StoredKind::kChatCompletion));
  CHECK_FALSE(store.Erase(StoredKind::kChatCompletion, "", "a"));
  CHECK(store.Erase(StoredKind::kResponse, "", "a"));
  CHECK_FALSE(store.Erase(StoredKind::kResponse, "", "a"));
}

TEST_CASE("a store without room keeps nothing") {
  AnswerStore none({.max_answers = 0});
  none.Put(Answer("a"));
  CHECK(none.size() == 0);
  AnswerStore no_bytes({.max_bytes = 0});
  no_bytes.Put(Answer("a"));
  CHECK(no_bytes.bytes() == 0);
  CHECK(no_bytes.size() == 0);
}

TEST_CASE("an answer is found, listed and removed by its tenant alone") {
  AnswerStore store{AnswerStoreOptions()};
  const StoredKind chat = StoredKind::kChatCompletion;
  for (const char* tenant : {"a", "b"}) {
    StoredAnswer answer = Answer(absl::StrCat("of-", tenant), 10, chat);
    answer.tenant = tenant;
    store.Put(std::move(answer));
  }
  CHECK(store.Find(chat, "a", "of-a") != nullptr);
  for (const char* other : {"b", "", "c"}) {
    CHECK(store.Find(chat, other, "of-a") == nullptr);
    CHECK_FALSE(store.Erase(chat, other, "of-a"));
  }
  CHECK(store.All(chat, "a").size() == 1);
  CHECK(store.All(chat, "").empty());
  CHECK(store.Erase(chat, "b", "of-b"));
  CHECK(store.Find(chat, "a", "of-a") != nullptr);
}

}  // namespace
}  // namespace baton
