// The stop matcher against a naive search over the whole text.
#include "text/stop_matcher.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

namespace baton {
namespace {

struct Found {
  std::string text;
  int stop = -1;
};

// Returns the match that ends first, of those the longest, of equal ones the first listed.
Found Naive(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Found best;
    size_t length = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].size() > end || stops[i].size() <= length) continue;
      if (text.compare(end - stops[i].size(), stops[i].size(), stops[i]) != 0) continue;
      length = stops[i].size();
      best = {text.substr(0, end - length), static_cast<int>(i)};
    }
    if (best.stop >= 0) return best;
  }
  return {text, -1};
}

// Returns the length of the longest suffix that is a proper prefix of a stop string: the bytes to
// hold back.
size_t MustHold(const std::string& text, const std::vector<std::string>& stops) {
  size_t max = 0;
  for (const std::string& stop : stops)
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n)
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) max = std::max(max, n);
  return max;
}

std::string RandomText(std::mt19937& random, size_t max, int letters) {
  std::string text;
  for (size_t n = random() % (max + 1); n > 0; --n)
    text.push_back(
        static_cast<char>('a' + static_cast<int>(random() % static_cast<uint32_t>(letters))));
  return text;
}

}  // namespace

TEST_CASE("random stops in random texts, cut at random places") {
  std::mt19937 random(3);
  size_t matches = 0;
  for (int round = 0; round < 50000; ++round) {
    const int letters = 1 + static_cast<int>(random() % 3);
    std::vector<std::string> stops;
    for (size_t n = random() % 5; n > 0; --n) stops.push_back(RandomText(random, 5, letters) + 'a');
    const std::string text = RandomText(random, 40, letters);
    StopMatcher matcher = StopMatcher::Create(stops).value();
    const Found expected = Naive(text, stops);
    Found got;
    bool lazy = false;  // the matcher held back more or less than required
    for (size_t i = 0; i < text.size() && !matcher.stopped();) {
      const size_t size = std::min<size_t>(random() % 4, text.size() - i);
      const StopMatcher::Result result = matcher.Push(text.substr(i, size));
      i += size;
      got.text += result.text;
      got.stop = result.stop;
      if (result.stop < 0) lazy |= got.text.size() + MustHold(text.substr(0, i), stops) != i;
    }
    CHECK(matcher.stopped() == (expected.stop >= 0));
    CHECK(matcher.Push("later").text.empty() == matcher.stopped());
    if (expected.stop < 0) {
      // "later" has letters that may occur in stops: a new matcher gets the text again for its end.
      StopMatcher fresh = StopMatcher::Create(stops).value();
      std::string whole = fresh.Push(text).text;
      whole += fresh.Finish();
      CHECK(whole == text);
    } else {
      ++matches;
      CHECK(got.text == expected.text);
      CHECK(got.stop == expected.stop);
      CHECK(matcher.Finish().empty());
    }
    CHECK_FALSE(lazy);
  }
  CHECK(matches > 5000);
}

TEST_CASE("a stop across pieces and characters") {
  StopMatcher matcher = StopMatcher::Create({"</s>", "\n\nUser:", "\xE2\x82\xAC"}).value();
  CHECK(matcher.Push("Hello\n").text == "Hello");
  CHECK(matcher.Push("\nUs").text.empty());
  CHECK(matcher.Push("a </").text == "\n\nUsa ");
  CHECK(matcher.Push("b").text == "</b");
  const auto result = matcher.Push(" 5 \xE2\x82\xAC and more");
  CHECK(result.text == " 5 ");
  CHECK(result.stop == 2);
  CHECK(matcher.Finish().empty());
}

TEST_CASE("limits") {
  CHECK(StopMatcher::Create({}).ok());
  CHECK(StopMatcher::Create(std::vector<std::string>(kMaxStopStrings, "x")).ok());
  CHECK(StopMatcher::Create(std::vector<std::string>(kMaxStopStrings + 1, "x")).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(StopMatcher::Create({"a", ""}).status().message() == "stop[1]: an empty string");
  CHECK(StopMatcher::Create({std::string(kMaxStopBytes, 'a')}).ok());
  CHECK_FALSE(StopMatcher::Create({std::string(kMaxStopBytes + 1, 'a')}).ok());
}

TEST_CASE("the worst case stays linear") {
  // Search for a...ab in a...a: a naive matcher would restart at every byte.
  std::vector<std::string> stops;
  for (size_t i = 0; i < kMaxStopStrings; ++i)
    stops.push_back(std::string(kMaxStopBytes - 1 - i, 'a') + 'b');
  StopMatcher matcher = StopMatcher::Create(stops).value();
  size_t emitted = 0;
  for (int i = 0; i < 2000; ++i) emitted += matcher.Push(std::string(1000, 'a')).text.size();
  CHECK(emitted == 2000 * 1000 - (kMaxStopBytes - 1));
}

}  // namespace baton
