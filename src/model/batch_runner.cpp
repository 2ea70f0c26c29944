#include "model/batch_runner.h"

#include <algorithm>

namespace filigree {
namespace {

// A loop has two input buffers, with and without accumulation, and rarely another scale, at an epoch's end.
constexpr std::size_t kMostArguments = 16;

}  // namespace

void BatchRunner::run(Device& device, Transformer& model, Activations& activations, const Tensor& tokens,
                      const Tensor& targets, float scale, bool accumulate, const GradientReady& ready) {
  const auto work = [&] {
    if (!accumulate) model.zero_gradients(device);
    model.forward_backward(device, activations, tokens, targets, scale, accumulate, ready);
  };
  if (!device.is_cuda() || !refusal_.empty() || ready) return work();
  const Arguments arguments = {.tokens = tokens.data,
                               .targets = targets.data,
                               .sequences = tokens.shape[0],
                               .positions = tokens.shape[1],
                               .scale = scale,
                               .accumulate = accumulate};
  const auto found = kept_.find(arguments);
  if (found == kept_.end() || found->second.scratch_moves != device.scratch_moves()) {
    // The first time kernels are chosen and scratch memory grows.
    work();
    if (found != kept_.end() || kept_.size() < kMostArguments)
      kept_.insert_or_assign(arguments, Kept{.scratch_moves = device.scratch_moves(), .graph = nullptr});
    return;
  }
  std::unique_ptr<WorkGraph>& graph = found->second.graph;
  if (!graph) {
    try {
      graph = std::make_unique<WorkGraph>(device, work);
    } catch (const Error& error) {
      refusal_ = error.what();
      kept_.clear();
      return work();
    }
  }
  graph->launch();
}

std::size_t BatchRunner::graphs() const {
  return static_cast<std::size_t>(
      std::count_if(kept_.begin(), kept_.end(), [](const auto& entry) { return entry.second.graph != nullptr; }));
}

}  // namespace filigree
