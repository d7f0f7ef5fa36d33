#include "tests/e2e/chaos/requests.h"

#include <boost/json.hpp>

#include "absl/strings/str_format.h"
#include "tests/e2e/chaos/dice.h"

namespace baton {
namespace {

namespace json = boost::json;

json::array RandomTokens(Dice& dice, int n, int vocab) {
  json::array tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(dice.Between(3, vocab - 1));
  return tokens;
}

std::string RandomText(Dice& dice) {
  static constexpr const char* kThings[] = {"duck", "box", "cellar", "apple", "river", "king"};
  std::string text = "Tell me a story about a";
  for (int64_t words = dice.Between(1, 40); words > 0; --words) {
    text += absl::StrFormat(" %s %d", kThings[dice.Between(0, 5)], dice.Between(0, 99));
  }
  return text + ".";
}

void AddSampling(Dice& dice, json::object* body) {
  if (dice.Chance(0.5)) {
    (*body)["temperature"] = 0;
    return;
  }
  (*body)["temperature"] = 0.5 + dice.Share();
  (*body)["top_p"] = 0.95;
  if (dice.Chance(0.5)) (*body)["top_k"] = 50;
  (*body)["seed"] = dice.Between(1, 1000000);
}

ChaosRequest MakeRequest(const CatalogueOptions& options, int i) {
  Dice dice(options.seed * 1000003 + static_cast<uint64_t>(i));
  ChaosRequest request;
  json::object body;
  static constexpr const char* kKinds[] = {"short", "long", "story", "chat"};
  request.kind = kKinds[i % (options.has_text ? 4 : 3)];
  request.path = "/v1/completions";
  if (request.kind == "chat") {
    request.path = "/v1/chat/completions";
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", RandomText(dice)}}};
    body["max_tokens"] = dice.Between(16, 120);
  } else if (request.kind == "long") {
    body["prompt"] = RandomTokens(
        dice, static_cast<int>(dice.Between(options.long_min, options.long_max)), options.vocab);
    body["max_tokens"] = dice.Between(8, std::min(64, options.max_output));
    body["ignore_eos"] = true;
  } else {
    const bool is_story = request.kind == "story";
    const bool as_text = options.has_text && dice.Chance(0.5);
    const int n_prompt = static_cast<int>(dice.Between(1, 120));
    if (as_text) {
      body["prompt"] = RandomText(dice);
    } else {
      body["prompt"] = RandomTokens(dice, n_prompt, options.vocab);
    }
    const int max = options.max_output;
    body["max_tokens"] = is_story ? dice.Between(max / 2, max) : dice.Between(1, max / 4);
    body["ignore_eos"] = true;
  }
  AddSampling(dice, &body);
  request.stream = !dice.Chance(0.25);
  body["stream"] = request.stream;
  if (request.stream) body["stream_options"] = {{"include_usage", true}};
  if (dice.Chance(1.0 / 3)) body["prompt_logprobs"] = dice.Between(0, 3);
  for (const char* extra : {"return_token_ids", "baton_digest", "timings"}) body[extra] = true;
  request.body = json::serialize(body);
  return request;
}

}  // namespace

std::vector<ChaosRequest> MakeCatalogue(const CatalogueOptions& options) {
  std::vector<ChaosRequest> requests;
  for (int i = 0; i < options.n_requests; ++i) requests.push_back(MakeRequest(options, i));
  return requests;
}

}  // namespace baton
