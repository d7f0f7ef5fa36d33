#include "server/cli/top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "bench/load/http_client.h"
#include "server/cli/key_header.h"
#include "server/cli/top_screen.h"

namespace baton {
namespace {

constexpr int kPeriodMs = 1000;
constexpr int kPlainRequests = 40;  // lines where stdout is no terminal
constexpr char kHome[] = "\x1b[H", kRestOfLine[] = "\x1b[K", kRestOfScreen[] = "\x1b[J";

absl::Status Ask(const HttpClient& client, const std::map<std::string, std::string>& headers,
                 TopScreen* screen) {
  ASSIGN_OR_RETURN(const HttpResponse answer,
                   client.Get(absl::StrCat("/v1/cluster/live?after=", screen->cursor()), headers));
  if (answer.status == 200) return screen->Take(answer.body);
  if (answer.status == 401 || answer.status == 403)
    return absl::PermissionDeniedError(
        absl::StrCat("the server answers ", answer.status,
                     ": give a key with the scope admin, --key-file FILE"));
  return absl::UnavailableError(
      absl::StrCat("the server answers ", answer.status, ": ", answer.body.substr(0, 200)));
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return 1;
}

// Waits for the next second; true: the user has typed q, or more is not to be waited for.
bool WaitForQuit(bool* has_input) {
  pollfd input{.fd = *has_input ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
  if (::poll(&input, 1, kPeriodMs) <= 0) return false;
  char typed[64];
  const ssize_t n = ::read(STDIN_FILENO, typed, sizeof typed);
  if (n <= 0) *has_input = false;
  return n > 0 && std::find(typed, typed + n, 'q') != typed + n;
}

}  // namespace

int RunTop(const TopCommand& command) {
  const auto url = HttpUrl::Parse(command.url);
  if (!url.ok()) return Fail(url.status());
  const auto headers = KeyHeader(command.key_file);
  if (!headers.ok()) return Fail(headers.status());
  const HttpClient client(*url, absl::Seconds(5));
  TopScreen screen;
  absl::Status asked = Ask(client, *headers, &screen);
  if (!asked.ok()) return Fail(asked);
  if (::isatty(STDOUT_FILENO) == 0) {
    std::fputs(screen.Text(/*width=*/1000, kPlainRequests).c_str(), stdout);
    return 0;
  }
  std::fputs("\x1b[2J", stdout);
  bool has_input = true;
  while (true) {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size = {24, 80, 0, 0};
    std::string text = screen.Text(size.ws_col, size.ws_row - 2);
    if (!asked.ok()) absl::StrAppend(&text, std::string(asked.message()), "\n");
    absl::StrReplaceAll({{"\n", absl::StrCat(kRestOfLine, "\n")}}, &text);
    std::printf("%s%s%s", kHome, text.c_str(), kRestOfScreen);
    std::fflush(stdout);
    if (WaitForQuit(&has_input)) return 0;
    asked = Ask(client, *headers, &screen);  // what it shows stays while the server does not answer
  }
}

}  // namespace baton
