// What a forward pass keeps for the backward pass, allocated once for the largest batch of a run.
// B sequences of S positions, T = B·S tokens, C width, H heads, G key/value heads, D head size, F MLP width.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "io/config.h"

namespace filigree {

// none: everything is kept. norm: the norms' outputs are computed again. activation: these, and the output of the MLP's
// activation, unless it is ReLU. block: only each block's input is kept, the block's forward pass runs again.
// inference: nothing is kept.
enum class Recompute : std::uint8_t { none, norm, activation, block, inference };
Recompute recompute_named(std::string_view name);

struct BlockActivations {
  Tensor sum1;          // (T, C) the residual stream that enters the block
  Tensor normed1;       // (T, C)
  Tensor mean1, rstd1;  // (T) fp32
  Tensor qkv;           // (T, (H + 2G)·D) after rotary
  Tensor attended;      // (T, H·D)
  Tensor logsumexp;     // (B, H, S) fp32
  Tensor sum2;          // (T, C) the residual stream after attention
  Tensor normed2;       // (T, C)
  Tensor mean2, rstd2;  // (T) fp32
  Tensor up;            // (T, F), or (T, 2F) for swiglu; none for relu, which needs its output alone
  Tensor hidden;        // (T, F)
};

class Activations {
 public:
  // `model` must be resolved (no zero extents).
  Activations(Device& device, const ModelConfig& model, DType dtype, std::int64_t batch, std::int64_t sequence,
              Recompute recompute);

  std::int64_t batch() const { return batch_; }
  std::int64_t sequence() const { return sequence_; }
  Recompute recompute() const { return recompute_; }

  // Views for `batch` sequences of `sequence` tokens; their product must not exceed what was planned.
  BlockActivations block(std::int64_t index, std::int64_t batch, std::int64_t sequence) const;

  // Shared by all blocks, (T, width) views: the output of a block's branch, the gradient of the residual stream, and
  // two scratch arrays of the backward pass: one of qkv or MLP width, which lies where the logits were
  // (Scratch::caller), and one of C or H·D.
  Tensor branch(std::int64_t tokens) const { return rows(branch_, tokens, width_); }
  Tensor dsum(std::int64_t tokens) const { return rows(dsum_, tokens, width_); }
  Tensor wide_gradient(Device& device, std::int64_t tokens, std::int64_t columns) const;
  Tensor narrow_gradient(std::int64_t tokens, std::int64_t columns) const { return rows(narrow_, tokens, columns); }

  // Around the blocks: the final norm's input, output and statistics, the losses, and the gradient of the output.
  Tensor final_sum(std::int64_t tokens) const { return rows(final_sum_, tokens, width_); }
  Tensor final_normed(std::int64_t tokens) const { return rows(final_normed_, tokens, width_); }
  Tensor final_mean(std::int64_t tokens) const { return rows(final_mean_, tokens, 0); }
  Tensor final_rstd(std::int64_t tokens) const { return rows(final_rstd_, tokens, 0); }
  Tensor losses(std::int64_t tokens) const { return rows(losses_, tokens, 0); }

 private:
  // columns = 0: a vector of `tokens` entries.
  static Tensor rows(const OwnedTensor& owner, std::int64_t tokens, std::int64_t columns);

  // One array a member of BlockActivations: `copies` planes, one a block where it is kept, one for all where it is not.
  struct Plane {
    OwnedTensor data;
    std::int64_t width = 0;  // elements a token
    std::int64_t copies = 0;
  };
  enum Member {
    kSum1,
    kNormed1,
    kMean1,
    kRstd1,
    kQkv,
    kAttended,
    kLogsumexp,
    kSum2,
    kNormed2,
    kMean2,
    kRstd2,
    kUp,
    kHidden,
    kMembers
  };
  Tensor member(Member which, std::int64_t block, std::int64_t tokens) const;

  std::int64_t batch_, sequence_, width_, heads_;
  DType dtype_;
  Recompute recompute_;
  std::vector<Plane> planes_;
  OwnedTensor branch_, dsum_, narrow_, final_sum_, final_normed_, final_mean_, final_rstd_, losses_;
};

// Width of the packed query, key and value projection: (H + 2G)·D.
std::int64_t qkv_width(const ModelConfig& model);
// Outputs of the MLP's first layer: 2F for llama (gate and up), F otherwise.
std::int64_t up_width(const ModelConfig& model);

}  // namespace filigree
