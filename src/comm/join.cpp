#include "comm/join.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "comm/mpi_communicator.h"
#include "core/cuda_runtime.h"

namespace filigree {

std::unique_ptr<Communicator> join_ranks(const Launch& launch, const Config& config) {
  const std::chrono::duration<double> timeout(config.distributed.timeout);
  require_user(launch.way == Launch::Way::mpi,
               launch.launcher + " started " + std::to_string(launch.size) +
                   " ranks without MPI, which is needed on processors; use mpirun, or srun --mpi=pmix");
  return std::make_unique<MpiCommunicator>(launch.size, timeout);
}

int threads_of_rank(int ranks_here) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const auto processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < processors) return 0;
  return std::max(processors / std::max(ranks_here, 1), 1);
}

}  // namespace filigree
