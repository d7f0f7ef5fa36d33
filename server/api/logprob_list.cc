#include "server/api/logprob_list.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "text/detokenizer.h"

namespace baton {
namespace {

constexpr float kLowest = -9999;

std::string_view BytesOf(const LogprobForm& form, int32_t token) {
  return form.tokenizer == nullptr ? std::string_view() : form.tokenizer->TokenBytes(token);
}

std::string NameOf(const LogprobForm& form, int32_t token, std::string_view bytes) {
  if (form.tokens_as_ids || form.tokenizer == nullptr) return absl::StrCat("token_id:", token);
  return ValidUtf8(bytes);
}

// An entry of "content" or "top_logprobs", without its end.
void WriteToken(JsonWriter& json, const LogprobForm& form, const TokenLogprob& token,
                std::string_view bytes) {
  json.Field("token", NameOf(form, token.token, bytes));
  json.Field("logprob", Told(token.logprob));
  if (!form.with_bytes) return;
  if (form.tokenizer == nullptr) {
    json.Field("bytes", nullptr);
    return;
  }
  json.BytesField("bytes", bytes);
}

}  // namespace

// Negative zero becomes zero.
float Told(float logprob) { return std::isnan(logprob) ? kLowest : std::max(logprob, kLowest) + 0; }

std::vector<TokenLogprob> Listed(const LogprobForm& form, const ReportedToken& token) {
  const size_t n = token.others.size(), n_top = n - std::min(n, form.n_named);
  std::vector<TokenLogprob> listed(token.others.begin(),
                                   token.others.begin() + static_cast<ptrdiff_t>(n_top));
  for (size_t i = n_top; i < n; ++i) {
    const bool known = std::any_of(listed.begin(), listed.end(), [&](const TokenLogprob& other) {
      return other.token == token.others[i].token;
    });
    if (!known) listed.push_back(token.others[i]);
  }
  return listed;
}

void LogprobList::Add(const EmitToken& token, std::string_view bytes, int64_t offset) {
  waiting_.push_back({token.token, token.logprob, token.logprobs, std::string(bytes), offset});
}

std::vector<ReportedToken> LogprobList::TakeUpTo(size_t n) {
  std::vector<ReportedToken> taken;
  for (; n_taken_ < n && !waiting_.empty(); ++n_taken_) {
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return taken;
}

void WriteTokenLogprobs(JsonWriter& json, const LogprobForm& form,
                        const std::vector<ReportedToken>& tokens) {
  for (const ReportedToken& token : tokens) {
    json.Object([&] {
      WriteToken(json, form, {token.token, token.logprob}, token.bytes);
      json.Array("top_logprobs", [&] {
        for (const TokenLogprob& other : Listed(form, token)) {
          json.Object([&] { WriteToken(json, form, other, BytesOf(form, other.token)); });
        }
      });
    });
  }
}

void WriteChatLogprobs(JsonWriter& json, const LogprobForm& form,
                       const std::vector<ReportedToken>& tokens) {
  json.Object("logprobs", [&] {
    json.Array("content", [&] { WriteTokenLogprobs(json, form, tokens); });
    json.Field("refusal", nullptr);
  });
}

void WriteCompletionLogprobs(JsonWriter& json, const LogprobForm& form,
                             const std::vector<ReportedToken>& tokens) {
  json.Object("logprobs", [&] {
    json.Array("tokens", [&] {
      for (const ReportedToken& token : tokens) json.Value(NameOf(form, token.token, token.bytes));
    });
    json.Array("token_logprobs", [&] {
      for (const ReportedToken& token : tokens) {
        if (!token.has_logprob) {
          json.Value(nullptr);
          continue;
        }
        json.Value(Told(token.logprob));
      }
    });
    json.Array("top_logprobs", [&] {
      for (const ReportedToken& token : tokens) {
        if (!token.has_logprob) {
          json.Value(nullptr);
          continue;
        }
        json.Object([&] {
          absl::flat_hash_set<std::string> names;
          const auto write = [&](const TokenLogprob& other) {
            // The token itself by the bytes that it added to the text, so that the name is the one
            // in "tokens".
            const std::string name =
                NameOf(form, other.token,
                       other.token == token.token ? token.bytes : BytesOf(form, other.token));
            if (names.insert(name).second) json.Field(name, Told(other.logprob));
          };
          for (const TokenLogprob& other : Listed(form, token)) write(other);
          write({token.token, token.logprob});
        });
      }
    });
    json.Array("text_offset", [&] {
      for (const ReportedToken& token : tokens) json.Value(token.offset);
    });
  });
}

void WritePromptLogprobs(JsonWriter& json, const LogprobForm& form, size_t top,
                         const std::vector<int32_t>& prompt,
                         const std::vector<PromptLogprob>& told) {
  const auto write = [&](const TokenLogprob& entry, int64_t rank) {
    json.Object(absl::StrCat(entry.token), [&] {
      json.Field("logprob", Told(entry.logprob));
      json.Field("rank", rank);
      if (form.tokenizer == nullptr) {
        json.Field("decoded_token", nullptr);
      } else {
        json.Field("decoded_token", ValidUtf8(form.tokenizer->TokenBytes(entry.token)));
      }
    });
  };
  json.Array("prompt_logprobs", [&] {
    json.Value(nullptr);
    for (size_t i = 0; i < told.size() && i + 1 < prompt.size(); ++i) {
      const int32_t token = prompt[i + 1];
      json.Object([&] {
        write({token, told[i].logprob}, told[i].rank);
        for (size_t place = 0; place < std::min(top, told[i].top.size()); ++place)
          if (told[i].top[place].token != token)
            write(told[i].top[place], static_cast<int64_t>(place) + 1);
      });
    }
  });
}

}  // namespace baton
