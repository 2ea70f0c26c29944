// Ranks that are threads of one process: for tests, and for runs that study an exchange on one processor or GPU. Each
// has a device of its own; arrays are added in the order of the ranks, so that results depend on nothing else.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace filigree {

// Calls body(communicator) on `ranks` threads and returns when all have ended. Where one throws, the others' next or
// current call of their communicator throws RankLost; then the exception that says most is thrown on: one of a rank's
// own before FailedElsewhere, RankLost last. Devices that the bodies use must be of one kind, and on one GPU.
void run_virtual_ranks(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace filigree
