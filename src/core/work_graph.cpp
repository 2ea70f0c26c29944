#include "core/work_graph.h"

namespace filigree {

WorkGraph::WorkGraph(Device& device, const std::function<void()>& work) : device_(device) {
  require(device.is_cuda() && !device.recording_, "work is recorded on a GPU, and not within other work");
  cuda::begin_recording(device.stream());
  device.recording_ = true;
  try {
    work();
  } catch (...) {
    device.recording_ = false;
    cuda::discard_recording(device.stream());
    throw;
  }
  device.recording_ = false;
  graph_ = cuda::end_recording(device.stream());
}

WorkGraph::~WorkGraph() {
  cuda::destroy_graph(graph_);
}

void WorkGraph::launch() const {
  cuda::launch(graph_, device_.stream());
}

}  // namespace filigree
