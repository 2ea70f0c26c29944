#include "comm/nccl_communicator.h"

namespace filigree {

std::string nccl_refusal() {
  return "this build of filigree has no NCCL (cmake --preset cuda, with NCCL's header)";
}

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Control>) {
  throw UserError(nccl_refusal());
}

}  // namespace filigree
