// Signal handling of the command: no partial files are left.
#include <signal.h>
#include <unistd.h>

#include <csignal>

#include "runtime/os_output.h"
#include "tools/onepass_command.h"

namespace onepass::command {

namespace {

volatile std::sig_atomic_t calls = 0, asked_to_stop = 0;

// Runs the default action afterwards, so that the parent process sees the signal. The first SIGINT requests that a running call stop; the
// second SIGINT ends the command.
void end(int signal) {
  if (signal == SIGINT && calls > 0 && !asked_to_stop) {
    asked_to_stop = 1;
    return;
  }
  os::remove_temporaries();
  if (signal == SIGINT) ::_exit(130);
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when the handler returns
}

}  // namespace

InterruptibleCall::InterruptibleCall() { calls = 1; }
InterruptibleCall::~InterruptibleCall() { calls = 0; }
bool InterruptibleCall::asked_to_stop() { return command::asked_to_stop != 0; }

void install_signal_handlers() {
  ::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;  // nohup, or a background job of a shell
    action = {};
    action.sa_handler = end;
    sigfillset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace onepass::command
