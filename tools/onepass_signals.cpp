// What signals do to the command: nothing half-written is left behind.
#include <signal.h>
#include <unistd.h>

#include "runtime/os_output.h"
#include "tools/onepass_command.h"

namespace onepass::command {

namespace {

// The default action follows: who waits for the command sees by what it ended.
void end(int signal) {
  os::remove_temporaries();
  if (signal == SIGINT) ::_exit(130);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when the handler returns
}

}  // namespace

void install_signal_handlers() {
  ::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;  // nohup, or a shell's background job
    action = {};
    action.sa_handler = end;
    sigfillset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace onepass::command
