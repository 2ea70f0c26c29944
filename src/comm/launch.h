// Which rank this process is, as its launcher says in the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace filigree {

struct Launch {
  // How the ranks find each other: by MPI (mpirun, srun with PMI), or at an address (torchrun, srun without).
  enum class Way { alone, mpi, address };
  Way way = Way::alone;
  std::string launcher;  // "mpirun", "torchrun", "srun", for messages
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine
  int local_size = 1;
  std::string host;  // of the first rank; way == address
  int port = 0;
};

// The variables that are read, in this order:
//   mpirun         OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMI_RANK, PMI_SIZE
//   torchrun       RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   srun           SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE; with PMIX_RANK by MPI,
//                  otherwise at the first of SLURM_STEP_NODELIST (or MASTER_ADDR), at a port made of SLURM_JOB_ID (or
//                  MASTER_PORT)
// torchrun's own store takes MASTER_PORT; ours is at the next one, or at FILIGREE_PORT. One rank, or none of these
// variables: alone. Throws UserError where a variable is missing or makes no sense.
Launch launch_from(const std::function<std::optional<std::string>(const std::string& name)>& variable);
Launch launch_from_environment();

// The first host of a Slurm list: "n[003-010,12],m1" is n003.
std::string first_host(const std::string& list);

}  // namespace filigree
