#include "comm/join.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "comm/mpi_communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/tcp_control.h"

namespace filigree {

std::unique_ptr<Communicator> join_ranks(const Launch& launch, const Config& config, const std::string& version) {
  const std::chrono::duration<double> timeout(config.distributed.timeout);
  if (!Device::means_gpu(config.run.device)) {
    require_user(launch.way == Launch::Way::mpi,
                 launch.launcher + " started " + std::to_string(launch.size) +
                     " ranks without MPI, which is needed on processors; use mpirun, or srun --mpi=pmix");
    return std::make_unique<MpiCommunicator>(launch.size, timeout);
  }
  require_user(nccl_refusal().empty(), "several ranks on GPUs: " + nccl_refusal());
  if (launch.way == Launch::Way::mpi) return make_nccl_communicator(std::make_unique<MpiControl>(launch.size, timeout));
  return make_nccl_communicator(make_tcp_control(launch, timeout, version));
}

int threads_of_rank(int ranks_here) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const auto processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < processors) return 0;
  return std::max(processors / std::max(ranks_here, 1), 1);
}

}  // namespace filigree
