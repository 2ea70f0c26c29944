#include "comm/agreement.h"

#include <exception>

namespace filigree {

int exit_code(const std::exception& error) {
  if (const auto* elsewhere = dynamic_cast<const FailedElsewhere*>(&error)) return elsewhere->code();
  if (dynamic_cast<const UserError*>(&error)) return 2;
  return dynamic_cast<const Interrupted*>(&error) ? 3 : 1;
}

void together(Communicator& communicator, const std::function<void()>& action) {
  if (communicator.size() == 1) return action();
  std::exception_ptr failure;
  std::string outcome;  // a digit, the exit code, and the message; "" where all is well
  try {
    action();
  } catch (const RankLost&) {
    throw;  // nobody is there to be told
  } catch (const std::exception& error) {
    failure = std::current_exception();
    outcome = std::to_string(exit_code(error)) + error.what();
  }
  const std::vector<std::string> outcomes = communicator.all_gather(outcome);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].empty()) continue;
    if (static_cast<int>(rank) == communicator.rank()) std::rethrow_exception(failure);
    throw FailedElsewhere(outcomes[rank][0] - '0', outcomes[rank].substr(1));
  }
}

void as_rank(Communicator& communicator, const std::function<void()>& work) {
  try {
    work();
  } catch (const FailedElsewhere&) {
    communicator.follow();
    throw;
  } catch (...) {
    communicator.give_up();
    throw;
  }
}

}  // namespace filigree
