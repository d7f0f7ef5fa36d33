// The names by which browsers may call a server on the loopback address. A page of another site can
// give its own name our address (DNS rebinding) and then read our answers; the Host header tells.
// Plain data, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

class HostNames {
 public:
  // localhost, 127.0.0.1, [::1], `bound` (the host that the server binds), and those of `listed`,
  // with a comma between them. A * among them: any name.
  HostNames(std::string_view bound, std::string_view listed);
  // host: the header's value, with or without a port. No header at all is allowed: browsers send
  // one.
  bool Allows(std::string_view host) const;

 private:
  std::vector<std::string> names_;  // in lower case, without brackets
  bool any_ = false;
};

}  // namespace baton
