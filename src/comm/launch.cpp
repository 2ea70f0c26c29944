#include "comm/launch.h"

#include <charconv>
#include <cstdlib>

#include "core/error.h"

namespace filigree {
namespace {

using Variables = std::function<std::optional<std::string>(const std::string& name)>;

int number_in(const std::string& name, const std::string& text, int minimum, int maximum) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  require_user(error == std::errc() && stopped == end && value >= minimum && value <= maximum,
               "the environment's " + name + " is \"" + text + "\"; expected a whole number from " +
                   std::to_string(minimum) + " to " + std::to_string(maximum) + ", as a launcher sets it");
  return value;
}

constexpr int kMostRanks = 1 << 20;

class Reader {
 public:
  explicit Reader(const Variables& variable) : variable_(variable) {}

  bool has(const std::string& name) const { return variable_(name).has_value(); }
  int number(const std::string& name, int minimum, int maximum) const {
    const auto text = variable_(name);
    require_user(text.has_value(), "the environment has no " + name +
                                       ", but other variables of a launcher; start filigree "
                                       "with mpirun, srun or torchrun, or without any of them");
    return number_in(name, *text, minimum, maximum);
  }
  std::optional<int> number_if_there(const std::string& name, int minimum, int maximum) const {
    if (!has(name)) return std::nullopt;
    return number(name, minimum, maximum);
  }
  std::string text(const std::string& name) const { return variable_(name).value_or(""); }

  Launch launch(Launch::Way way, const char* launcher, const std::string& rank, const std::string& size,
                const std::string& local_rank, const std::string& local_size) const {
    Launch found;
    found.way = way;
    found.launcher = launcher;
    found.size = number(size, 1, kMostRanks);
    found.rank = number(rank, 0, found.size - 1);
    found.local_rank = number_if_there(local_rank, 0, kMostRanks).value_or(0);
    // Slurm's lists the machines: "4(x2)".
    const std::string ranks_here = text(local_size);
    found.local_size = ranks_here.empty() ? 1 : std::max(std::atoi(ranks_here.c_str()), 1);
    if (found.size == 1) found.way = Launch::Way::alone;
    return found;
  }

 private:
  const Variables& variable_;
};

Launch torchrun(const Reader& read) {
  Launch found = read.launch(Launch::Way::address, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  found.host = read.text("MASTER_ADDR");
  require_user(!found.host.empty(), "the environment has WORLD_SIZE, but no MASTER_ADDR; torchrun sets both");
  found.port = read.number("MASTER_PORT", 1, 65534) + 1;
  return found;
}

Launch srun(const Reader& read) {
  const bool pmix = read.has("PMIX_RANK");
  Launch found = read.launch(pmix ? Launch::Way::mpi : Launch::Way::address, "srun", "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE");
  if (found.way != Launch::Way::address) return found;
  found.host = read.has("MASTER_ADDR") ? read.text("MASTER_ADDR") : first_host(read.text("SLURM_STEP_NODELIST"));
  require_user(!found.host.empty(),
               "srun says neither SLURM_STEP_NODELIST nor MASTER_ADDR; set MASTER_ADDR to the "
               "machine of rank 0");
  // Two jobs on one machine rarely have numbers that are 10000 apart.
  found.port = read.has("MASTER_PORT")
                   ? read.number("MASTER_PORT", 1, 65535)
                   : 20000 + read.number_if_there("SLURM_JOB_ID", 0, 2147483647).value_or(0) % 10000;
  return found;
}

}  // namespace

std::string first_host(const std::string& list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') return list.substr(0, open);
  const std::size_t end = list.find_first_of("-,]", open);
  return list.substr(0, open) + list.substr(open + 1, end == std::string::npos ? end : end - open - 1);
}

Launch launch_from(const Variables& variable) {
  const Reader read(variable);
  Launch found;
  if (read.has("OMPI_COMM_WORLD_SIZE"))
    found = read.launch(Launch::Way::mpi, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  else if (read.has("PMI_SIZE"))
    found = read.launch(Launch::Way::mpi, "mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  else if (read.has("WORLD_SIZE"))
    found = torchrun(read);
  else if (read.has("SLURM_STEP_NUM_TASKS"))
    found = srun(read);
  if (found.way == Launch::Way::address && read.has("FILIGREE_PORT"))
    found.port = read.number("FILIGREE_PORT", 1, 65535);
  return found;
}

Launch launch_from_environment() {
  return launch_from([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace filigree
