#include "comm/mpi_engine.h"
#include "core/error.h"

namespace filigree {

class MpiEngine::Thread {};

bool has_mpi() {
  return false;
}

MpiEngine::MpiEngine(int, std::chrono::duration<double>) {
  throw UserError(
      "a launcher of MPI started several ranks, but this build of filigree has no MPI: install libopenmpi-dev "
      "(scripts/setup) and build again");
}
MpiEngine::~MpiEngine() = default;
int MpiEngine::rank() const {
  return 0;
}
int MpiEngine::size() const {
  return 1;
}
std::uint64_t MpiEngine::all_reduce(std::span<const Tensor>) {
  return 0;
}
std::uint64_t MpiEngine::reduce_scatter(const Tensor&, const Tensor&) {
  return 0;
}
std::uint64_t MpiEngine::all_gather(const Tensor&, const Tensor&) {
  return 0;
}
std::uint64_t MpiEngine::broadcast(const Tensor&, int) {
  return 0;
}
void MpiEngine::wait(std::uint64_t) {}
std::vector<std::string> MpiEngine::all_gather(std::string_view) {
  return {};
}
void MpiEngine::give_up() noexcept {}
void MpiEngine::entered() noexcept {}
void MpiEngine::progress() noexcept {}

}  // namespace filigree
