#include "core/interrupt.h"

#include <csignal>

namespace filigree {
namespace {

// The one global of the engine: a signal handler has no other way to speak.
volatile std::sig_atomic_t requested = 0;

void on_signal(int signal) {
  if (requested) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  requested = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupt_requested() {
  return requested != 0;
}

}  // namespace filigree
