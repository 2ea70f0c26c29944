// Ranks that are processes, computing on processors, over MPI. Arrays lie in host memory.
#pragma once

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/mpi_engine.h"

namespace filigree {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(int size, std::chrono::duration<double> timeout) : engine_(size, timeout) {}

  int rank() const override { return engine_.rank(); }
  int size() const override { return engine_.size(); }
  std::string_view name() const override { return "MPI"; }
  using Communicator::all_gather;
  std::vector<std::string> all_gather(std::string_view text) override { return engine_.all_gather(text); }
  void give_up() noexcept override { engine_.give_up(); }
  void progress() noexcept override { engine_.progress(); }

 protected:
  void entered() noexcept override { engine_.entered(); }
  std::uint64_t start_all_reduce(Device&, std::span<const Tensor> arrays) override {
    return engine_.all_reduce(arrays);
  }
  std::uint64_t start_reduce_scatter(Device&, const Tensor& part, const Tensor& array) override {
    return engine_.reduce_scatter(part, array);
  }
  std::uint64_t start_all_gather(Device&, const Tensor& array, const Tensor& part) override {
    return engine_.all_gather(array, part);
  }
  std::uint64_t start_broadcast(Device&, const Tensor& array, int root) override {
    return engine_.broadcast(array, root);
  }
  void wait(Device&, std::uint64_t ticket) override { engine_.wait(ticket); }

 private:
  MpiEngine engine_;
};

// Values of the host over MPI, where GPUs have another way for arrays.
class MpiControl final : public Control {
 public:
  MpiControl(int size, std::chrono::duration<double> timeout) : engine_(size, timeout) {}

  int rank() const override { return engine_.rank(); }
  int size() const override { return engine_.size(); }
  std::vector<std::string> all_gather(std::string_view text) override { return engine_.all_gather(text); }
  void give_up() noexcept override { engine_.give_up(); }
  void entered() noexcept override { engine_.entered(); }
  void progress() noexcept override { engine_.progress(); }

 private:
  MpiEngine engine_;
};

}  // namespace filigree
