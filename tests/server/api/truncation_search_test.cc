// The search for messages to leave out: few tries, and none too many go where tokens follow bytes.
#include "server/api/truncation_search.h"

#include <catch2/catch.hpp>
#include <random>

#include "common/ids.h"

namespace baton {
namespace {

struct Found {
  std::optional<size_t> n_left_out;
  int n_tries = 0;
};

// tokens: of each message. The prompt has `rest` tokens beside them.
Found Search(const std::vector<size_t>& bytes, const std::vector<int64_t>& tokens, int64_t rest,
             int64_t room) {
  std::vector<int64_t> left(tokens.size() + 1, rest);
  for (size_t i = tokens.size(); i-- > 0;) left[i] = left[i + 1] + tokens[i];
  REQUIRE(left[0] > room);
  TruncationSearch search(bytes, left[0], room);
  Found found;
  while (const auto next = search.Next()) {
    ++found.n_tries;
    REQUIRE(*next > 0);
    REQUIRE(*next < tokens.size());
    if (left[*next] <= room) {
      search.OnFits(left[*next]);
    } else {
      search.OnTooLong(left[*next]);
    }
  }
  found.n_left_out = search.found();
  if (found.n_left_out) CHECK(left[*found.n_left_out] <= room);
  CHECK(found.n_tries <= TruncationSearch::kMaxTries);
  return found;
}

// The fewest, by looking at all.
std::optional<size_t> Fewest(const std::vector<int64_t>& tokens, int64_t rest, int64_t room) {
  std::optional<size_t> fewest;
  for (size_t i = tokens.size(); i-- > 1;) {
    rest += tokens[i];
    if (rest > room) break;
    fewest = i;
  }
  return fewest;
}

TEST_CASE("where tokens follow bytes the fewest messages go, after few tries") {
  const uint64_t seed = RandomId();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int n_tries = 0;
  for (int run = 0; run < 200; ++run) {
    std::vector<size_t> bytes(2 + random() % 2000);
    std::vector<int64_t> tokens;
    int64_t all = 0;
    for (size_t& n_bytes : bytes) {
      n_bytes = 40 + (random() % 8 == 0 ? random() % 9000 : random() % 300);
      tokens.push_back(static_cast<int64_t>(n_bytes / 4));
      all += tokens.back();
    }
    // Less than the whole prompt has.
    const int64_t room = 90 + static_cast<int64_t>(random() % static_cast<uint64_t>(all));
    const Found found = Search(bytes, tokens, 90, room);
    CHECK(found.n_left_out == Fewest(tokens, 90, room));
    n_tries += found.n_tries;
  }
  CHECK(n_tries < 200 * 5);
}

TEST_CASE("where they do not, tries are bounded, and what is found fits") {
  const uint64_t seed = RandomId();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < 200; ++run) {
    std::vector<size_t> bytes(2 + random() % 100000);
    std::vector<int64_t> tokens;
    for (size_t& n_bytes : bytes) {
      n_bytes = random() % 1000;
      tokens.push_back(static_cast<int64_t>(run % 2 == 0 ? random() % 1000 : 1000 - n_bytes));
    }
    tokens.front() += 1000;
    const Found found = Search(bytes, tokens, 0, 1000);
    // The last message alone is tried before the search gives up.
    CHECK(found.n_left_out.has_value() == (tokens.back() <= 1000));
  }
}

TEST_CASE("of one message none can go, and a last message that is too long leaves nothing") {
  CHECK_FALSE(Search({100}, {100}, 0, 50).n_left_out);
  CHECK_FALSE(Search({100, 100, 400}, {25, 25, 100}, 0, 50).n_left_out);
}

}  // namespace
}  // namespace baton
