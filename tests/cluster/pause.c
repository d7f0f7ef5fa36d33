// Process 1 of a pod's or node's namespaces: ends orphans, and itself when told to.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void End(int signal) { _exit(signal == SIGTERM || signal == SIGINT ? 0 : 1); }
static void Reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction end = {.sa_handler = End};
  struct sigaction reap = {.sa_handler = Reap, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &end, NULL);
  sigaction(SIGTERM, &end, NULL);
  sigaction(SIGCHLD, &reap, NULL);
  for (;;) pause();
}
