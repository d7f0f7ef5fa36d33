#include "server/config/live_settings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr LiveSetting kLive[] = {
    {"server.cors_origin", "answers that begin after it"},
    {"server.sse_keepalive", "all streams, each from its next blank line on"},
    {"server.request_timeout", "requests that come after it"},
    {"server.slo_ttft", "requests that come after it"},
    {"server.slo_itl", "requests that come after it; the number of decode workers asked for"},
    {"server.shutdown_timeout", "the next stop"},
    {"router.max_waiting", "requests that come after it; those that wait stay"},
    {"tracing.sample", "requests that come after it"},
    {"log.level", "lines that are written after it, by every process"},
};

constexpr char kHead[] = R"(
## Changed while running

`baton serve` and single roles read file and flags again at SIGHUP (`systemctl reload baton`), and
take what has changed of these keys. Any other key that has changed keeps its value until a restart,
and a line of the log names it. A file that is refused changes nothing. At SIGHUP, and by themselves
when they change, the files behind `server.api_key_file`, `server.tls_*` and `cluster.tls_*` are
read again, too.

| key | what goes by the new value |
|---|---|
)";

}  // namespace

std::span<const LiveSetting> LiveSettings() { return kLive; }

bool IsLive(std::string_view key) {
  return std::any_of(std::begin(kLive), std::end(kLive),
                     [&](const LiveSetting& live) { return key == live.key; });
}

void TakeLiveValues(const Settings& from, Settings* to) {
  for (const LiveSetting& live : kLive) {
    const Settings::Setting* setting = from.Find(live.key);
    BATON_CHECK(setting != nullptr);
    const absl::Status set = to->SetFlag(live.key, setting->get(), setting->origin);
    BATON_CHECK(set.ok());  // the same declaration gave the value
  }
}

std::string LiveSettingsMarkdown() {
  std::string text = kHead;
  for (const LiveSetting& live : kLive)
    absl::StrAppend(&text, "| `", live.key, "` | ", live.effect, " |\n");
  return text;
}

}  // namespace baton
