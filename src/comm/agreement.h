// Work that all ranks do and that may fail on one of them: all learn of it, one says it.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace filigree {

// Another rank has failed and says why: this one ends with the same exit code, without a word.
class FailedElsewhere : public Error {
 public:
  FailedElsewhere(int code, const std::string& what) : Error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// The program's exit code for an exception of ours: 2 for a UserError, 3 for Interrupted, 1 for others.
int exit_code(const std::exception& error);

// Calls action on every rank. Where it throws on any, the first of these throws its exception on, and all others
// FailedElsewhere. With one rank a plain call.
void together(Communicator& communicator, const std::function<void()>& action);

// The whole work of a rank that is a process. Where it throws, the others are told not to wait for it, or, where
// another rank says why, that one is waited for (Communicator::follow); the exception goes on.
void as_rank(Communicator& communicator, const std::function<void()>& work);

// Throws an error that all ranks have found alike: on the first as it is, on others as FailedElsewhere.
template <typename E>
[[noreturn]] void throw_once(const Communicator& communicator, const E& error) {
  if (communicator.is_first()) throw error;
  throw FailedElsewhere(exit_code(error), error.what());
}

}  // namespace filigree
