#include "common/state_machine.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <catch2/catch.hpp>

namespace baton {
namespace {

enum class Door { kClosed, kOpen, kGone };
constexpr StateRow kStates[] = {
    {"closed", "none needed", "-"}, {"open", "draught", "falls shut"}, {"gone", "", ""}};
constexpr TransitionRow kTransitions[] = {{0, 1}, {1, 0}, {0, 2}};
const MachineTable kDoor{"door", "the house", kStates, kTransitions};

TEST_CASE("A machine moves along its table, and every move is counted") {
  TransitionCounts counts;
  MachineState<Door> door(kDoor, &counts);
  REQUIRE(door == Door::kClosed);
  door = Door::kOpen;
  door = Door::kOpen;  // no move
  door = Door::kClosed;
  door = Door::kOpen;
  REQUIRE(counts.count(kDoor, {0, 1}) == 2);
  REQUIRE(counts.count(kDoor, {1, 0}) == 1);
  REQUIRE(counts.count(kDoor, {0, 2}) == 0);
  TransitionCounts sum;
  sum.Add(counts);
  sum.Add(counts);
  REQUIRE(sum.count(kDoor, {0, 1}) == 4);
}

TEST_CASE("A transition the table does not have ends the process") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);
    MachineState<Door> door(kDoor, nullptr);
    door = Door::kOpen;
    door = Door::kGone;
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGABRT);
}

}  // namespace
}  // namespace baton
