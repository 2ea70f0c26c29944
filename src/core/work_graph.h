// Work of a GPU that is called again and again with the same arguments, recorded once and then launched as a whole: the
// host does in some microseconds what takes it some microseconds a kernel. The bits are those of the work itself.
#pragma once

#include <functional>

#include "core/device.h"

namespace filigree {

class WorkGraph {
 public:
  // Calls `work`, of which nothing is done yet: its kernels and copies are recorded with their arguments, addresses
  // among them. Throws Error where it waits for the GPU, makes scratch memory grow or allocates; the device is then as
  // it was. For a GPU alone; `device` must outlive the graph.
  WorkGraph(Device& device, const std::function<void()>& work);
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;
  ~WorkGraph();

  // Does the work, in the order of the device's stream. Scratch memory must be where it was (Device::scratch_moves).
  void launch() const;

 private:
  Device& device_;
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace filigree
