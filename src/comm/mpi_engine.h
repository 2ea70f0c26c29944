// MPI, in one thread of its own: it alone calls the library, carries on what is under way while others compute, and
// keeps watch over the ranks (vigil.h). The one place that knows MPI; its header does not.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace filigree {

// Whether this build has MPI.
bool has_mpi();

class MpiEngine {
 public:
  // Joins the ranks that the launcher started. One engine a process, ever. Throws UserError where MPI says that there
  // are not `size` of them.
  MpiEngine(int size, std::chrono::duration<double> timeout);
  ~MpiEngine();

  int rank() const;
  int size() const;

  // Collectives as in communicator.h, of arrays in host memory. Each returns its number; they end in any order, and
  // wait(n) returns when all up to n have.
  std::uint64_t all_reduce(std::span<const Tensor> arrays);
  std::uint64_t reduce_scatter(const Tensor& part, const Tensor& array);
  std::uint64_t all_gather(const Tensor& array, const Tensor& part);
  std::uint64_t broadcast(const Tensor& array, int root);
  void wait(std::uint64_t number);
  std::vector<std::string> all_gather(std::string_view text);
  void give_up() noexcept;

  // For the vigil: the main thread is about to start a collective of arrays (values count by themselves), or has done
  // something of its own.
  void entered() noexcept;
  void progress() noexcept;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace filigree
