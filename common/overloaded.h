// Makes one function object of several, for std::visit: the one whose parameter fits best is
// called.
#pragma once

namespace baton {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace baton
