// From the configuration to each layer's method: which linear layers are sparse, and how.
#pragma once

#include "io/config.h"
#include "sparsity/linear_weight.h"

namespace filigree {

// What the linear layer called `name` is built as. A layer named by weights.dense_layers is dense, every other one has
// weights.method with its pattern or block; then [[weights.override]] entries that name it apply in order, the last one
// wins. With `dense_phase` (before weights.start) every layer is dense.
LinearSpec layer_spec(const Config& config, const std::string& name, std::int64_t inputs, std::int64_t outputs,
                      Mode mode, bool dense_phase);

}  // namespace filigree
