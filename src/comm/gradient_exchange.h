// How the gradients of a step become those of the whole batch: the one interface behind which an exchange lives. Dense
// adds all of them over the ranks; Radius and others send a part and keep the rest for later.
//
// What the trainer does with it, on every rank alike (E: the exchange):
//
//   E.attach(parameters)                    at the start, and whenever a phase changed them
//   each step:
//     forward and backward of all micro-batches but the last
//     E.begin_step(step)
//     the last one; E.gradient_ready(p) as soon as backward has written p's gradient for the last time, or, without
//                   distributed.overlap, for all of them after it
//     E.finish()                            p.gradient() is what the optimizer shall see: of a sharded parameter the
//                                           elements that this rank keeps at least
//     norm = sqrt(E.sum_of_squares()), clip = min(1, train.clip / norm)
//     E.update(the updates of what is kept) AdamW; or in its place whatever the exchange makes of it
//       or E.leave_out()                    where the loss or the norm is not finite
//     gather_values() where the optimizer's state is sharded; weights are refreshed; E.report() goes to the metrics
//
// Gradients are sums: the trainer has scaled each token's by 1 / (targets of the whole batch, over all ranks), so that
// the sum over the ranks is the gradient of the mean loss, and nobody divides by P. For the same reason what is kept
// for later is a part of a sum: on another number of ranks each takes (sum over the old ranks) / P.
//
// Where the loss or the norm is not finite the step is left out, on all ranks alike, for loss and norm are the same
// everywhere. What waits has then taken up numbers of that step: leave_out() mends it at once, so that a checkpoint
// that is written next is good.
//
// With one rank the trainer calls an exchange only when it is not "dense": delayed gradients mean the same on one rank.
// A parameter is known by its pointer between two calls of attach, and by its name across them and in checkpoints.
// An exchange allocates in attach alone, calls nothing that waits for a GPU between begin_step and finish, and calls
// the communicator's collectives in an order that follows from the parameters' order alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "io/config.h"
#include "sparsity/parameter_update.h"

namespace filigree {

struct ExchangeStep {
  std::int64_t step = 0;   // 0 is the run's first optimizer step, also after a resume
  std::int64_t steps = 0;  // train.steps
};

// What an exchange leaves in a checkpoint. Names are the exchange's own, e.g. "residual.blocks.0.mlp.up.values".
class ExchangeSink {
 public:
  virtual ~ExchangeSink() = default;
  // Equal on all ranks: rank 0's is written.
  virtual void put_shared(const std::string& name, const Tensor& tensor) = 0;
  // Each rank has its own, fp32.
  virtual void put_per_rank(const std::string& name, const Tensor& tensor) = 0;
};
class ExchangeSource {
 public:
  virtual ~ExchangeSource() = default;
  virtual bool has(const std::string& name) const = 0;
  // Both throw UserError where the array is missing or has another count. `out` is of the device.
  virtual void load_shared(Device& device, const std::string& name, const Tensor& out) const = 0;
  // With as many ranks as wrote it each gets its own bits back; otherwise each gets the sum over them / P.
  virtual void load_per_rank(Device& device, const std::string& name, const Tensor& out) const = 0;
};

class GradientExchange {
 public:
  explicit GradientExchange(Communicator& communicator) : communicator_(communicator) {}
  virtual ~GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  virtual std::string_view name() const = 0;  // as in gradients.exchange

  // `parameters` in the order in which their gradients get ready; the same on all ranks. Called again after a phase
  // change: a parameter with a name and count that were there before keeps its state, others begin anew.
  virtual void attach(Device& device, const std::vector<Parameter*>& parameters) = 0;

  virtual void begin_step(Device& device, const ExchangeStep& step) = 0;
  // All work that writes this gradient has been called. Each parameter once a step, in attach's order.
  virtual void gradient_ready(Device& device, Parameter& parameter) = 0;
  // What is left is exchanged; on return every gradient is there (on a GPU in the stream's order).
  virtual void finish(Device& device) = 0;

  // Of what clipping limits: all gradients, unless an exchange knows better. The same on all ranks.
  virtual double sum_of_squares(Device& device);
  // Calls adamw with all of them, unless an exchange knows better.
  virtual void update(Device& device, std::span<const ParameterUpdate> updates);

  // In place of update(). All ranks call it.
  virtual void leave_out(Device& /*device*/) {}

  virtual void save(ExchangeSink& /*sink*/) const {}
  // attach() has been called. Called once, after the model was loaded.
  virtual void load(Device& /*device*/, const ExchangeSource& /*source*/) {}

  // Numbers of the last step for metrics.jsonl, e.g. {"flush", 1}; the same names at the same step on all ranks. The
  // bytes sent are the trainer's: it takes them from the communicator.
  virtual std::vector<std::pair<std::string, double>> report() const { return {}; }

 protected:
  Communicator& communicator_;
  std::vector<Parameter*> parameters_;  // attach keeps them here
};

// The exchange that gradients.exchange names. `communicator` must outlive it.
std::unique_ptr<GradientExchange> make_gradient_exchange(const Config& config, Communicator& communicator);

// gradients.sparse_rows: how many rows of this parameter each rank sends as a list, whatever the exchange; 0: none.
inline constexpr std::string_view kListedParameter = "embedding.tokens";
std::int64_t listed_rows(const Config& config, std::int64_t ranks);

}  // namespace filigree
