#include "core/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

namespace filigree {
namespace {

// The globals of the engine: a signal handler has no other way to speak.
volatile std::sig_atomic_t requested = 0;
std::atomic<const char*> notice = nullptr;

void on_signal(int signal) {
  if (requested) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  requested = 1;
  const char* const text = notice;
  // Nothing can be done here about a closed standard error.
  if (text != nullptr && ::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void on_broken_pipe(int) {
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
  action.sa_handler = on_broken_pipe;
  sigaction(SIGPIPE, &action, nullptr);
}

void set_interrupt_notice(const char* text) {
  notice = text;
}

bool interrupt_requested() {
  return requested != 0;
}

}  // namespace filigree
