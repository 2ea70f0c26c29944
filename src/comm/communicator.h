// How the ranks of a run talk: sums, parts and copies of arrays, and small values of the host. Who carries them is a
// back end: none (one rank), threads of one process (virtual_ranks.h), MPI, or NCCL.
//
// Contract of the collectives:
//   - All ranks make the same calls in the same order, with the same types and counts. Calls return at once; the arrays
//     may be neither read nor written before Pending::wait, and must stay where they are until then.
//   - On the CPU wait() returns when the result is there. On a GPU the call starts behind the work that the device's
//     stream holds, runs beside what is queued later, and wait() makes the stream wait, not the host.
//   - Results are equal bits on all ranks. Whether two runs have equal bits is the back end's promise: one rank and
//     virtual ranks always (they add in the order of the ranks); MPI and NCCL for the same rank count, sizes and
//     machine, as their libraries promise it.
//   - bf16 is added in fp32 and rounded: once by virtual ranks, once a hop by MPI; NCCL as it does.
//   - Where a rank is lost, a call on the others throws RankLost or ends the process, as the back end says.
// Collectives of one communicator are called from one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/tensor.h"

namespace filigree {

// Another rank has ended, hangs or has failed: nothing can be exchanged any more. Exit code 1.
class RankLost : public Error {
 public:
  using Error::Error;
};

// What this rank has handed to its collectives. Values of the host (see below) are not counted: a few bytes a step.
struct Traffic {
  std::int64_t calls = 0;    // arrays
  std::int64_t payload = 0;  // bytes of the arrays, as they were handed over
  // Bytes that a rank sends when S bytes go around a ring of P ranks, the least that any algorithm sends on average:
  //   all_reduce 2 (P-1)/P · S     reduce_scatter, broadcast (P-1)/P · S     all_gather (P-1)/P · S, S: the gathered
  // A back end may choose another algorithm with more bytes for short arrays. Summed exactly, rounded once.
  double wire = 0.0;
};

class Communicator;

// A collective under way. Forgetting it is allowed where a later one is waited for: they end in their order.
class Pending {
 public:
  Pending() = default;
  Pending(Communicator& communicator, std::uint64_t ticket) : communicator_(&communicator), ticket_(ticket) {}
  // Nothing to do for one that was waited for, or never begun.
  void wait(Device& device);

 private:
  Communicator* communicator_ = nullptr;
  std::uint64_t ticket_ = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "single", "virtual", "MPI", "NCCL"
  bool is_first() const { return rank() == 0; }

  // Each of the arrays becomes its sum over the ranks, in place; fp32 or bf16. One call for many small arrays.
  Pending all_reduce(Device& device, std::span<const Tensor> arrays);
  Pending all_reduce(Device& device, const Tensor& array) { return all_reduce(device, std::span(&array, 1)); }
  // `array` is P parts of equal count, `part` one of them: rank r's becomes the sum of the parts r; fp32 or bf16.
  // `part` may be the rank's own part of `array`, whose other parts then hold anything.
  Pending reduce_scatter(Device& device, const Tensor& part, const Tensor& array);
  // `array` becomes the parts of all ranks in their order; any type. `part` may be the rank's own part of it.
  Pending all_gather(Device& device, const Tensor& array, const Tensor& part);
  // `array` becomes that of rank `root`; any type.
  Pending broadcast(Device& device, const Tensor& array, int root);

  // Values of the host, over a way of their own that does not disturb collectives under way. They return when the
  // result is there; all ranks must take part. Sums are taken in the order of the ranks, in double.
  virtual std::vector<std::string> all_gather(std::string_view text) = 0;  // by rank
  void barrier() { all_gather(""); }
  std::string broadcast(std::string_view text, int root = 0);
  std::vector<double> sum(std::span<const double> values);
  double sum(double value) { return sum(std::span(&value, 1))[0]; }
  // Whether a number, e.g. a hash of a mask, is the same on every rank.
  bool agree(std::uint64_t value);

  // This rank has done something of its own: a micro-batch, a pass of an evaluation, an array of a checkpoint. From the
  // first call on a rank that does nothing for distributed.timeout while others wait for it is lost (vigil.h).
  virtual void progress() noexcept {}

  // This rank ends for a reason of its own, which it says itself: the others need not wait for it.
  virtual void give_up() noexcept = 0;
  // This rank ends because another does, which says why (FailedElsewhere). It then waits at its own end until that one
  // gives up: a launcher ends all ranks when one has ended, and would cut the other one short.
  virtual void follow() noexcept {}

  const Traffic& traffic() const { return traffic_; }

 protected:
  // The same without counting; at least two ranks, arrays that are not empty.
  virtual void entered() noexcept {}  // one of these is about to start
  virtual std::uint64_t start_all_reduce(Device& device, std::span<const Tensor> arrays) = 0;
  virtual std::uint64_t start_reduce_scatter(Device& device, const Tensor& part, const Tensor& array) = 0;
  virtual std::uint64_t start_all_gather(Device& device, const Tensor& array, const Tensor& part) = 0;
  virtual std::uint64_t start_broadcast(Device& device, const Tensor& array, int root) = 0;
  virtual void wait(Device& device, std::uint64_t ticket) = 0;

 private:
  friend class Pending;
  void count(const Tensor& array, double rounds);

  Traffic traffic_;
};

// The communicator of a run that has one rank: everything is there already.
class SingleRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view name() const override { return "single"; }
  using Communicator::all_gather;
  std::vector<std::string> all_gather(std::string_view text) override { return {std::string(text)}; }
  void give_up() noexcept override {}

 protected:
  std::uint64_t start_all_reduce(Device&, std::span<const Tensor>) override { return 0; }
  std::uint64_t start_reduce_scatter(Device&, const Tensor&, const Tensor&) override { return 0; }
  std::uint64_t start_all_gather(Device&, const Tensor&, const Tensor&) override { return 0; }
  std::uint64_t start_broadcast(Device&, const Tensor&, int) override { return 0; }
  void wait(Device&, std::uint64_t) override {}
};

}  // namespace filigree
