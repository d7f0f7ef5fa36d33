#include "server/cli/new_key.h"

#include <openssl/rand.h>

#include <array>
#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {

std::string RandomKey() {
  std::array<unsigned char, 32> bytes{};
  BATON_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  std::string text = absl::WebSafeBase64Escape(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  while (text.ends_with('=')) text.pop_back();
  return absl::StrCat("bk_", text);
}

int RunNewKey(const NewKeyCommand& command) {
  const std::string key = RandomKey();
  KeyEntry entry = command.entry;
  entry.digest = KeyDigest::Of(key);
  std::fprintf(stderr, "%s\nthe key of %s, shown only now; its line for --api-key-file: stdout\n",
               key.c_str(), entry.name.c_str());
  std::printf("%s\n", KeyLine(entry).c_str());
  return 0;
}

}  // namespace baton
