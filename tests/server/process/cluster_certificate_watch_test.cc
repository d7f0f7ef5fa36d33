#include "server/process/cluster_certificate_watch.h"

#include <catch2/catch.hpp>
#include <optional>

#include "common/log.h"
#include "tests/server/http/loop_thread.h"
#include "tests/support/cluster_certificates.h"

namespace baton {
namespace {

TEST_CASE("a process that runs on is told when the certificate that its files have now expires") {
  SetLog(LogLevel::kError, "test");
  ClusterFiles files;
  LoopThread loop;
  std::optional<ClusterCertificateWatch> watch;
  absl::Time expiry;
  int n_told = 0;
  const auto days = [&] { return absl::ToDoubleHours(expiry - absl::Now()) / 24; };
  const auto certificate = files.Load("decode");
  watch.emplace(
      &loop.loop, certificate,
      [&](absl::Time time) {
        expiry = time;
        ++n_told;
      },
      absl::Milliseconds(20));
  CHECK(n_told == 1);
  CHECK(days() == Approx(90).margin(0.1));
  loop.Start();
  // Without a change the files are looked at again and again.
  CHECK(loop.WaitFor([&] { return n_told >= 4; }));
  files.Write("decode", absl::Hours(-1), absl::Hours(24 * 10));
  CHECK(loop.WaitFor([&] { return days() < 11; }));
  // Files that do not serve leave what was known.
  files.folder().Write("decode.key", "no key");
  const int before = loop.On([&] { return n_told; });
  CHECK(loop.WaitFor([&] { return n_told >= before + 3; }));
  CHECK(loop.On([&] { return days(); }) == Approx(10).margin(0.1));
  files.Write("decode", absl::Hours(-1), absl::Hours(24 * 30));
  CHECK(loop.WaitFor([&] { return days() > 29; }));
  loop.Stop();
}

}  // namespace
}  // namespace baton
