// Runs the micro-batches of a training loop. On a GPU, one that comes a second time with the same arguments (arrays,
// scale, accumulation) is recorded and from then on launched as a graph: a small model's step is otherwise bound by the
// launches of its kernels.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <string>

#include "core/work_graph.h"
#include "model/transformer.h"

namespace filigree {

class BatchRunner {
 public:
  // Transformer::forward_backward; before a step's first micro-batch (`accumulate` false) also zero_gradients. Returns
  // before a GPU is done. Model, activations and device must be the same in each call. With `ready`, as in
  // forward_backward, always call by call: a recorded graph cannot call back.
  void run(Device& device, Transformer& model, Activations& activations, const Tensor& tokens, const Tensor& targets,
           float scale, bool accumulate, const GradientReady& ready = {});
  // The model's arrays or layers have changed.
  void forget() { kept_.clear(); }

  // Graphs held; and why there are none any more, where recording failed: then all micro-batches run call by call.
  std::size_t graphs() const;
  const std::string& refusal() const { return refusal_; }

 private:
  struct Arguments {
    const void* tokens;
    const void* targets;
    std::int64_t sequences, positions;
    float scale;
    bool accumulate;

    friend auto operator<=>(const Arguments&, const Arguments&) = default;
  };
  struct Kept {
    std::int64_t scratch_moves;  // of the device, after the last run call by call
    std::unique_ptr<WorkGraph> graph;
  };

  std::map<Arguments, Kept> kept_;
  std::string refusal_;
};

}  // namespace filigree
